package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExecDoc writes the scripts of docs/plugins/exec.md as they stand there, runs its sessions and
// compares what is printed. Where there is no Python, its part is left out.
func TestExecDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/plugins/exec.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Logf("the example in Python is not run: %v", err)
		page = regexp.MustCompile("(?s)## A Python script.*?\n## ").ReplaceAllString(page, "## ")
	}
	home := t.TempDir()
	m := newMachine(t, "")
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(home, "texts"), 0o700); err != nil {
		t.Fatal(err)
	}
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
	if len(sessions) < 3 {
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
			sh.Env = []string{"HOME=" + home, "PATH=" + filepath.Dir(m.program) + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(),
				"LEDGERD_DB=sqlite:" + filepath.Join(home, "ledger.db")}
			out, _ := sh.CombinedOutput() // what the code was stands in the output
			got.WriteString(line + string(out))
		}
		if diff := cmp.Diff(timeless(session[1]), timeless(got.String())); diff != "" {
			t.Errorf("-page +printed\n%s", diff)
		}
	}
}
