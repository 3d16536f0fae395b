package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestExecDoc writes the scripts of docs/plugins/exec.md as they stand there, runs its sessions and compares what is
// printed. The part of a language that is not here is left out, and the test logs that.
func TestExecDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/plugins/exec.md")
	must.OK(t, err)
	page := string(text)
	for interpreter, part := range map[string]string{"python3": "## A Python script", "node": "## A Node script"} {
		if _, err := exec.LookPath(interpreter); err != nil {
			t.Logf("%s: not run: %v", part, err)
			before, rest, found := strings.Cut(page, part)
			_, after, closed := strings.Cut(rest, "\n## ")
			if !found || !closed {
				t.Fatalf("there is no part %q", part)
			}
			page = before + "## " + after
		}
	}
	home := t.TempDir()
	m := newMachine(t, "")
	write := func(name, content string) {
		t.Helper()
		must.OK(t, os.WriteFile(filepath.Join(home, name), []byte(content), 0o600))
	}
	must.OK(t, os.Mkdir(filepath.Join(home, "texts"), 0o700))
	write("texts/long.txt", "one two three\nfour five six seven\n")
	write("texts/short.txt", "one\n")
	write("texts/empty.txt", "")
	for _, script := range regexp.MustCompile("(?s)```[a-z]+ ([a-z.]+)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if lines := strings.Count(script[2], "\n"); lines > 10 {
			t.Errorf("%s has %d lines, at most 10", script[1], lines)
		}
		write(script[1], script[2])
	}
	sessions := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(sessions) < 2 {
		t.Fatalf("%d sessions", len(sessions))
	}
	for _, session := range sessions {
		var got strings.Builder
		for line := range strings.Lines(session[1]) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			sh := exec.Command("sh", "-c", command)
			sh.Dir = home
			sh.Env = []string{"HOME=" + home, "PATH=" + filepath.Dir(m.program) + ":" + os.Getenv("PATH"), "TMPDIR=" +
				os.TempDir(),
				"LEDGERD_DB=sqlite:" + filepath.Join(home, "ledger.db")}
			out, _ := sh.CombinedOutput() // the output has the exit code
			got.WriteString(line + string(out))
		}
		if diff := cmp.Diff(timeless(session[1]), timeless(got.String())); diff != "" {
			t.Errorf("-page +printed\n%s", diff)
		}
	}
}
