package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestExecDoc writes the scripts of docs/plugins/exec.md, runs its sessions and compares the output. Parts for a
// language that is not installed are left out, and the test logs that.
func TestExecDoc(t *testing.T) {
	text, err := os.ReadFile("../../docs/plugins/exec.md")
	must.OK(t, err)
	page := string(text)
	for _, needs := range []struct {
		part    string
		command []string
	}{
		{"## A Python script", []string{"python3", "-c", ""}},
		{"### Stays, in Python", []string{"python3", "-c", ""}},
		{"### Stays, and adds items", []string{"python3", "-c", ""}},
		{"### Stays, in Ruby", []string{"ruby", "-rjson", "-e", ""}},
		{"### Stays, in Perl", []string{"perl", "-MJSON::PP", "-e", ""}},
		{"## A Node script", []string{"node", "-e", ""}},
		{"### Stays, in Node", []string{"node", "-e", ""}},
	} {
		if err := exec.Command(needs.command[0], needs.command[1:]...).Run(); err != nil {
			t.Logf("%s: not run: %v", needs.part, err)
			before, rest, found := strings.Cut(page, needs.part+"\n")
			_, after, closed := strings.Cut(rest, "\n##")
			if !found || !closed {
				t.Fatalf("there is no part %q", needs.part)
			}
			page = before + "##" + after
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
	env := []string{"HOME=" + home, "PATH=" + filepath.Dir(m.program) + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(),
		"LEDGERD_DB=sqlite:" + filepath.Join(home, "ledger.db")}
	for _, page := range sessions {
		repeat(t, page[1], home, env)
	}
}
