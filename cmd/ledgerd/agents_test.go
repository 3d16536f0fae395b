package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// TestAgentsReadme runs the sessions of examples/agents and compares their output, except for the time of day, the
// place of the ledger and the number of its schema.
func TestAgentsReadme(t *testing.T) {
	const folder = "../../examples/agents"
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	must.OK(t, err)
	var want strings.Builder
	for i, part := range strings.Split(string(readme), "```console\n") {
		if session, _, closed := strings.Cut(part, "```\n"); i > 0 && closed {
			want.WriteString(session)
		}
	}
	onFile(t, func(t *testing.T, m *machine) {
		var got strings.Builder
		for line := range strings.SplitSeq(want.String(), "\n") {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			sh := exec.Command("sh", "-c", command)
			sh.Dir = folder
			sh.Env = append(m.env, "PATH="+filepath.Dir(m.program)+":"+os.Getenv("PATH"))
			out, _ := sh.CombinedOutput() // the output has the exit code
			got.WriteString(line + "\n" + regexp.MustCompile(`(?m)^ledger: .*\n`).ReplaceAllString(string(out), ""))
		}
		steady := func(s string) string {
			s = regexp.MustCompile(`\b\d\d:\d\d\b`).ReplaceAllString(s, "HH:MM")
			return regexp.MustCompile(`(?m)^\S+: made, with schema \d+`).ReplaceAllString(s, "LEDGER: made, with schema N")
		}
		if diff := cmp.Diff(steady(want.String()), steady(got.String())); diff != "" {
			t.Errorf("the README has another output (-README +output):\n%s\n%s", diff, got.String())
		}
		m.run(failure.ExitOK, "db", "verify")
	})
}
