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

// TestReadme runs the session of the README in the home of a new user. How far the first command gets before it is
// killed differs, so the rest of its output is compared without numbers; a slow machine gets more time.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	must.OK(t, err)
	commands := sessions(t, string(readme), 1)[0]
	const kill = "timeout -s KILL 1 "
	if !strings.Contains(commands, kill) {
		t.Fatalf("the session has no %q", kill)
	}
	m := newMachine(t, "")
	numbers := regexp.MustCompile(`(known|done) [0-9,]+`)
	got := ""
	for _, seconds := range []string{"1", "0.3", "3", "10"} {
		home := t.TempDir()
		got = session(t, strings.Replace(commands, kill, "timeout -s KILL "+seconds+" ", 1), home, []string{"HOME=" + home,
			"PATH=" + filepath.Dir(m.program) + ":" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()})
		if strings.Contains(got, "\nKilled\n") && strings.Contains(got, " known 1,000   done ") { // it was, while it ran
			got = strings.Replace(got, "timeout -s KILL "+seconds+" ", kill, 1)
			break
		}
	}
	want, got := numbers.ReplaceAllString(commands, "$1 N"), numbers.ReplaceAllString(got, "$1 N")
	if diff := cmp.Diff(timeless(want), timeless(got)); diff != "" {
		t.Errorf("-README +printed\n%s", diff)
	}
}

// The demo prints its results, in a separate ledger, not in that of the user.
func TestDemo(t *testing.T) {
	home := t.TempDir()
	m := newMachine(t, "")
	config := filepath.Join(home, ".config", "ledgerd", "ledgerd.toml")
	must.OK(t, os.MkdirAll(filepath.Dir(config), 0o700))
	must.OK(t, os.WriteFile(config, []byte("db = \"sqlite:"+home+"/configured.db\"\n"), 0o600))
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

// sessions returns the sessions of a page, the texts between ```console and ```. Their number must be want.
func sessions(t testing.TB, page string, want int) (all []string) {
	t.Helper()
	for _, found := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(page, -1) {
		all = append(all, found[1])
	}
	if len(all) != want {
		t.Fatalf("the page has %d sessions, want %d", len(all), want)
	}
	return all
}

// repeat runs a session of a page and compares its output. Durations may differ. The functions steady replace other
// parts that may differ.
func repeat(t testing.TB, page, home string, env []string, steady ...func(string) string) {
	t.Helper()
	want, got := page, session(t, page, home, env)
	for _, f := range append(steady, timeless) {
		want, got = f(want), f(got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-page +printed\n%s", diff)
	}
}

// session runs the commands of a page, the lines that begin with "$ ", in order. Each begins in the folder where the
// last one ended. It returns the commands with their output.
func session(t testing.TB, page, home string, env []string) string {
	t.Helper()
	var got strings.Builder
	place := filepath.Join(home, ".place") // has the folder in which the last command ended
	for line := range strings.Lines(page) {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		for rest := page[strings.Index(page, line)+len(line):]; strings.HasSuffix(command, "\\\n"); { // it continues
			next, after, _ := strings.Cut(rest, "\n")
			command, rest = command+next+"\n", after
		}
		sh := exec.Command("sh", "-c", "cd \"$(cat "+place+" 2>/dev/null)\"\n"+command+"pwd >"+place)
		sh.Dir, sh.Env = home, env
		out, _ := sh.CombinedOutput() // the output has the exit code
		got.WriteString("$ " + command + string(out))
	}
	return got.String()
}

// timeless returns a text with the same duration everywhere.
func timeless(s string) string {
	s = regexp.MustCompile(`(?m)^\[[0-9hms]+\] .*\n`).ReplaceAllString(s, "") // progress, printed after ten seconds
	return regexp.MustCompile(`[0-9]+\.[0-9] s\b`).ReplaceAllString(s, "0.1 s")
}
