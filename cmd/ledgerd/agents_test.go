package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAgentsReadme runs the sessions of examples/agents and compares what they print. Only the time of
// day and the ledger's place differ.
func TestAgentsReadme(t *testing.T) {
	const folder = "../../examples/agents"
	readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i, part := range strings.Split(string(readme), "```console\n") {
		if session, _, closed := strings.Cut(part, "```\n"); i > 0 && closed {
			want.WriteString(session)
		}
	}
	onBoth(t, func(t *testing.T, m *machine) {
		var got strings.Builder
		for line := range strings.SplitSeq(want.String(), "\n") {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			sh := exec.Command("sh", "-c", command)
			sh.Dir = folder
			sh.Env = append(m.env, "PATH="+filepath.Dir(m.program)+":"+os.Getenv("PATH"))
			out, _ := sh.CombinedOutput() // what the code was stands in the output
			got.WriteString(line + "\n" + regexp.MustCompile(`(?m)^ledger: .*\n`).ReplaceAllString(string(out), ""))
		}
		steady := func(s string) string {
			s = regexp.MustCompile(`\b\d\d:\d\d\b`).ReplaceAllString(s, "HH:MM")
			return regexp.MustCompile(`(?m)^\S+: made, with schema \d+`).ReplaceAllString(s, "LEDGER: made, with schema N")
		}
		if diff := cmp.Diff(steady(want.String()), steady(got.String())); diff != "" {
			t.Errorf("the README says otherwise (-README +output):\n%s\n%s", diff, got.String())
		}
		m.run(exitOK, "db", "verify")
	})
}

// TestAgents: several people and scripts claim at once, each by a process of its own. Each item is given
// to one of them, and what one of them lets expire to another.
func TestAgents(t *testing.T) {
	const items, agents, each = 24, 4, 3
	onBoth(t, func(t *testing.T, m *machine) {
		m.run(exitOK, "db", "migrate")
		m.run(exitOK, "kind", "set", "page")
		add := []string{"add", "page"}
		for i := range items {
			add = append(add, fmt.Sprint("page ", i))
		}
		m.run(exitOK, add...)
		m.run(exitOK, "claim", "page", "--agent", "gone", "--limit", "2", "--lease", "1s")
		var all sync.Map
		var group sync.WaitGroup
		for a := range agents {
			group.Go(func() {
				for {
					tokens := m.claimed("page", fmt.Sprint("agent-", a), each)
					if len(tokens) == 0 {
						return
					}
					for _, token := range tokens {
						if _, twice := all.LoadOrStore(token, a); twice {
							t.Errorf("%s was given twice", token)
						}
					}
					out := m.start(append([]string{"finish"}, tokens...)...)
					if code := m.exit(out); code != exitOK {
						t.Errorf("exit %d: %s", code, out.stderr.String())
						return
					}
				}
			})
		}
		group.Wait()
		m.until("what was left is to be had", func() bool {
			tokens := m.claimed("page", "heir", 2)
			for _, token := range tokens {
				all.Store(token, "heir")
			}
			return m.exit(m.start("ls", "--agent", "gone", "-o", "jsonl", "--error-on-empty")) == exitEmpty
		})
		for _, token := range m.claimed("page", "heir", 2) {
			m.run(exitOK, "finish", token)
		}
		attempts := map[string]int{}
		all.Range(func(token, _ any) bool {
			_, attempt, _ := strings.Cut(token.(string), ".")
			attempts[attempt]++
			return true
		})
		if attempts["1"] != items-2 || attempts["2"] != 2 {
			t.Errorf("claims by attempt: %v", attempts)
		}
		if rows := strings.Count(m.run(exitOK, "ls", "--state", "done", "-o", "jsonl"), "\n"); rows != items {
			t.Errorf("%d items are done", rows)
		}
		m.run(exitOK, "db", "verify")
	})
}

// claimed are the tokens of a claim.
func (m *machine) claimed(kind, agent string, limit int) (tokens []string) {
	p := m.start("claim", kind, "--agent", agent, "--limit", fmt.Sprint(limit), "-o", "json")
	if code := m.exit(p); code != exitOK {
		m.t.Errorf("claim: exit %d: %s", code, p.stderr.String())
		return nil
	}
	var rows []struct{ Token string }
	if err := json.Unmarshal([]byte(p.stdout.String()), &rows); err != nil {
		m.t.Error(err)
	}
	for _, r := range rows {
		tokens = append(tokens, r.Token)
	}
	return tokens
}
