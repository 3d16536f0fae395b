package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk"
)

func init() { plugins["poison"] = poison }

type poisonIn struct {
	Text string `json:"text" input:"line" doc:"what to do; \"poison\" kills ledgerd"`
	MS   int    `json:"ms" single:"true" schema:"min=0" doc:"how long the rest takes, milliseconds"`
}

// poison is a plugin with an item that kills the daemon, and not its own process.
func poison() *sdk.Plugin {
	p := sdk.New("poison", "0.1.0", func(ctx context.Context, cfg *effectConfig, it sdk.Item[poisonIn]) (string, error) {
		if err := cfg.note("start " + it.Key); err != nil {
			return "", err
		}
		if it.Payload.Text == "poison" {
			return "", syscall.Kill(os.Getppid(), syscall.SIGKILL)
		}
		if err := (effectIn{MS: it.Payload.MS}).wait(ctx); err != nil {
			return "", err
		}
		return "", cfg.note("done " + it.Key)
	})
	p.Doc = "Kills the daemon."
	p.Concurrency = 4
	return p
}

// An item kills its whole daemon each time it is begun, so there is never a report. After max_lost daemons it is dead.
// Once it was suspected, no other item was lost with it, and the items of its batches are done.
func TestPoison(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		const mates, maxLost, suspected = 12, 5, 3
		dir := t.TempDir()
		effects := filepath.Join(dir, "effects")
		list := []string{"poison"}
		for i := range mates {
			list = append(list, fmt.Sprint("mate ", i))
		}
		must.OK(t, os.WriteFile(filepath.Join(dir, "list"), []byte(strings.Join(list, "\n")), 0o600))
		m.run(failure.ExitOK, "add", "poison", "--from", filepath.Join(dir, "list"), "--set", "ms=20")
		m.run(failure.ExitOK, "kind", "set", "poison", "--max-lost", fmt.Sprint(maxLost))
		killed := 0
		for ; killed <= maxLost; killed++ {
			work := m.start("work", "--drain", "--kind", "poison", "--with", "path="+effects, "--lease", "5s")
			code := m.exit(work)
			if status := work.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() == syscall.SIGKILL {
				continue
			}
			if code != failure.ExitOK { // it only recorded the last loss
				t.Fatalf("exit %d\n%s%s", code, work.stdout.String(), work.stderr.String())
			}
			break
		}
		s := m.show("poison")
		if s.Item.State != "dead" || len(s.Attempts) != maxLost || killed != maxLost {
			t.Fatalf("after %d daemons it is %s: %+v", killed, s.Item.State, s.Attempts)
		}
		killers := map[string]int{} // agent → number of the loss
		for i, a := range s.Attempts {
			if killers[a.Agent] = i; a.Outcome != "lost" {
				t.Errorf("attempt %d ended %s", i+1, a.Outcome)
			}
		}
		shared := make([]int, maxLost) // how many items were lost with it each time
		for _, key := range list[1:] {
			s := m.show(key)
			if s.Item.State != "done" {
				t.Errorf("%s is %s", key, s.Item.State)
			}
			for _, a := range s.Attempts {
				if a.Outcome == "lost" {
					shared[killers[a.Agent]]++
				}
			}
		}
		for loss, n := range shared {
			if loss == 0 && n == 0 {
				t.Error("it had no batch-mates, so nothing was shown")
			}
			if loss >= suspected && n > 0 {
				t.Errorf("%d others were lost with it though it was lost %d times before", n, loss)
			}
		}
		if begun := lines(t, effects, "start")["poison"]; begun != maxLost {
			t.Errorf("begun %d times", begun)
		}
		if done := lines(t, effects, "done"); len(done) != mates {
			t.Errorf("%d of %d others were done", len(done), mates)
		}
		m.run(failure.ExitOK, "db", "verify")
	})
}
