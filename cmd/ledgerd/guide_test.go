package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestAuthorsGuide runs the sessions of docs/plugins/testing.md and compares the output.
func TestAuthorsGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/plugins/testing.md")
	must.OK(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/report.csv" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(make([]byte, 1897)) // the client may have gone
	}))
	defer server.Close()
	home := t.TempDir()
	link(t, filepath.Join(home, "ledgerd"))
	// Texts in the guide, each with its value here.
	places := []string{"http://localhost:8000", server.URL, "dir=/tmp", "dir=" + home, `"/tmp/`, `"` + home + "/",
		"-o ledgerd", "-o " + home + "/ledgerd"}
	here := strings.NewReplacer(places...)
	for i := 0; i < len(places); i += 2 {
		places[i], places[i+1] = places[i+1], places[i]
	}
	there := strings.NewReplacer(places...)
	for _, session := range sessions(t, string(text), 2) {
		var got strings.Builder
		for line := range strings.Lines(session) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			sh := exec.Command("sh", "-c", here.Replace(command))
			sh.Dir = home
			if strings.HasPrefix(command, "go ") {
				sh.Dir = "../../examples/fetch"
			}
			sh.Env = append(os.Environ(), "PATH="+home+":"+os.Getenv("PATH"), "XDG_DATA_HOME="+filepath.Join(home, "data"),
				"XDG_CONFIG_HOME="+filepath.Join(home, "config"))
			out, _ := sh.CombinedOutput() // the output is compared, not the error
			got.WriteString(line + there.Replace(string(out)))
		}
		if diff := cmp.Diff(timesAway(session), timesAway(got.String())); diff != "" {
			t.Errorf("-guide +printed\n%s", diff)
		}
	}
}

// timesAway returns a text without times and hashes, and without lines that are printed only when a step is slow.
func timesAway(text string) string {
	text = regexp.MustCompile(`[0-9a-f]{12}-`).ReplaceAllString(text, "HASH-")
	text = regexp.MustCompile(`[0-9.]+ ms`).ReplaceAllString(text, "TIME")
	return regexp.MustCompile(`(progress: .*\n)+`).ReplaceAllString(text, "progress\n")
}
