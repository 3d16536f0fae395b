package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestReadme runs the session of the README, on a copy of examples/inbox, in the home of a user who
// never had ledgerd before, and compares the output.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(readme), "```console\n")
	commands, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatal("the README has no session")
	}
	home := t.TempDir()
	m := newMachine(t, "")
	copyInbox(t, filepath.Join(home, "inbox"))
	got := session(t, commands, home, []string{"HOME=" + home, "PATH=" + filepath.Dir(m.program) + ":" + os.Getenv("PATH"),
		"TMPDIR=" + os.TempDir()})
	if diff := cmp.Diff(timeless(commands), timeless(got)); diff != "" {
		t.Errorf("-README +printed\n%s", diff)
	}
}

// TestDemo: the demo prints its results, in a ledger of its own, whatever ledger the user works with.
func TestDemo(t *testing.T) {
	home := t.TempDir()
	m := newMachine(t, "")
	config := filepath.Join(home, ".config", "ledgerd", "ledgerd.toml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("db = \"sqlite:"+home+"/configured.db\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	demo := exec.Command("../../examples/demo.sh")
	demo.Env = []string{"HOME=" + home, "PATH=" + filepath.Dir(m.program) + ":" + os.Getenv("PATH"), "TMPDIR=" +
		os.TempDir(), "LEDGERD_DB=sqlite:" + home + "/mine.db"}
	out, err := demo.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "added 0   changed 1   reopened 3   known 9") ||
		!strings.Contains(string(out), "ok: 13 items") {
		t.Errorf("%v\n%s", err, out)
	}
	if ledgers, err := filepath.Glob(filepath.Join(home, "*.db")); err != nil || len(ledgers) > 0 {
		t.Errorf("the demo has used %q, %v", ledgers, err)
	}
}

// session runs the commands of a page, the lines that begin with "$ ", one after the other in one shell's
// folders, and returns them with what each prints.
func session(t *testing.T, page, home string, env []string) string {
	t.Helper()
	var got strings.Builder
	place := filepath.Join(home, ".place") // where the last command has left the shell
	for line := range strings.Lines(page) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		sh := exec.Command("sh", "-c", "cd \"$(cat "+place+" 2>/dev/null)\"\n"+command+"pwd >"+place)
		sh.Dir, sh.Env = home, env
		out, _ := sh.CombinedOutput() // the output has the exit code
		got.WriteString("$ " + command + string(out))
	}
	return got.String()
}

// timeless is text in which every duration is the same.
func timeless(s string) string {
	return regexp.MustCompile(`[0-9]+\.[0-9] s\b`).ReplaceAllString(s, "0.1 s")
}

// copyInbox copies the example's files, as they would lie there for a while.
func copyInbox(t *testing.T, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS("../../examples/inbox")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(to, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
}
