package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/exec/group/grouptest"
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
		if diff := cmp.Diff(timeless(page[1]), timeless(session(t, page[1], home, env))); diff != "" {
			t.Errorf("-page +printed\n%s", diff)
		}
	}
}

// A command that stays loses its plugin while it works. Its processes end then, and every item is recorded as done
// once.
func TestStayingCommandIsKilled(t *testing.T) {
	const items = 300
	t.Parallel()
	dir := t.TempDir()
	m := newMachine(t, "sqlite:"+filepath.Join(dir, "ledger.db"))
	script := filepath.Join(dir, "worker")
	must.OK(t, os.WriteFile(script, []byte(`#!/bin/sh
echo $$ >> "$DIR/pids"
while read -r item; do
	id=${item#*:} id=${id%%,*}
	if [ "$id" = 150 ] && mkdir "$DIR/killed" 2>/dev/null; then kill -s KILL $PPID; sleep 600; fi
	echo "{\"id\":$id,\"output\":$id}"
done
`), 0o700))
	list := filepath.Join(dir, "list")
	var keys strings.Builder
	for n := range items {
		fmt.Fprintf(&keys, "k%d\n", n)
	}
	must.OK(t, os.WriteFile(list, []byte(keys.String()), 0o600))
	m.run(failure.ExitOK, "run", "stays", "--plugin", "exec", "--with", "command="+script, "--with", "stay=true",
		"--with", "env.DIR="+dir, "--from", list)
	for where, want := range map[string]int{"state:done": items, "": items} {
		if got := m.count("kind:stays " + where); got != want {
			t.Errorf("%q: %d items, want %d", where, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "killed")); err != nil {
		t.Errorf("the plugin was not killed: %v", err)
	}
	var ended, keysEnded int
	must.OK(t, m.database().QueryRowContext(t.Context(), "SELECT count(*), count(DISTINCT item_id) FROM ledger_attempts "+
		"WHERE final").Scan(&ended, &keysEnded))
	if ended != items || keysEnded != items {
		t.Errorf("%d attempts have ended %d items, want %d", ended, keysEnded, items)
	}
	pids, err := os.ReadFile(filepath.Join(dir, "pids"))
	must.OK(t, err)
	for word := range strings.FieldsSeq(string(pids)) {
		pid, err := strconv.Atoi(word)
		must.OK(t, err)
		grouptest.Gone(t, pid)
	}
}
