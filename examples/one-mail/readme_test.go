package onemail

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadme runs the sessions of README.md as they stand there and compares what is printed. Before
// each of them the mail server is started as the text describes.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	sessions := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	catchers := [][]string{nil, {"-hang-up"}, nil}
	received := []map[string]int{
		{"ann@example.com": 1, "bob@example.com": 1}, {"ann@example.com": 1, "bob@example.com": 1}, {"bob@example.com": 1},
	}
	if len(sessions) != len(catchers) {
		t.Fatalf("the README has %d sessions, want %d", len(sessions), len(catchers))
	}
	dir := programs.Dir(t)
	home := t.TempDir()
	for _, name := range []string{"job.sh", "users.csv"} {
		content, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(home, name), content, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var again []string // the same port as before: another server would be other settings
	for i, session := range sessions {
		box := listen(t, append(again, catchers[i]...)...)
		_, port, err := net.SplitHostPort(box.addr)
		if err != nil {
			t.Fatal(err)
		}
		again = []string{"-port", port}
		var got strings.Builder
		for line := range strings.Lines(session[1]) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			sh := exec.Command("sh", "-c", command)
			sh.Dir = home
			sh.Env = []string{"HOME=" + home, "PATH=" + dir + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(),
				"LEDGERD_DB=sqlite:" + filepath.Join(home, "ledger.db"), "SMTP=" + box.addr}
			out, _ := sh.CombinedOutput() // the output has the exit code
			got.WriteString(line + string(out))
		}
		if diff := cmp.Diff(timeless(session[1]), timeless(got.String())); diff != "" {
			t.Errorf("-README +printed\n%s", diff)
		}
		box.sync(t)
		if diff := cmp.Diff(received[i], perUser(box.close(t))); diff != "" {
			t.Errorf("session %d: -want +received\n%s", i+1, diff)
		}
	}
}

// timeless is text in which every duration is the same.
func timeless(s string) string {
	return regexp.MustCompile(`[0-9]+\.[0-9] s\b`).ReplaceAllString(s, "0.1 s")
}
