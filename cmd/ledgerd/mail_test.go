package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp/smtptest"
)

// gated is a mail server that takes each mail at once, but answers only when its gate is open.
type gated struct {
	smtptest.Mailbox
	open func() // opens the gate for all answers, from now on

	mu    sync.Mutex
	mails map[string]int // by recipient
}

func newGated(t *testing.T) *gated {
	t.Helper()
	gate := make(chan struct{})
	g := &gated{open: sync.OnceFunc(func() { close(gate) }), mails: map[string]int{}}
	g.AtData = func(to string) error {
		g.mu.Lock()
		g.mails[to]++
		g.mu.Unlock()
		<-gate
		return nil
	}
	g.Listen(t, nil)
	t.Cleanup(g.open) // before the server is closed
	return g
}

// received counts the mails that were taken for each recipient.
func (g *gated) received() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.mails)
}

// addMails adds mails to 0@example.com … n-1@example.com.
func (m *machine) addMails(n int) {
	m.t.Helper()
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "%d@example.com\n", i)
	}
	path := filepath.Join(m.t.TempDir(), "list")
	must.OK(m.t, os.WriteFile(path, []byte(list.String()), 0o600))
	m.run(failure.ExitOK, "add", "mail", "--from", path, "--set", "subject=Hello", "--set", "text=Good morning")
}

// keys returns the keys of all items in a state.
func (m *machine) keys(state ledger.State) []string {
	m.t.Helper()
	var keys []string
	for line := range strings.Lines(m.run(failure.ExitOK, "ls", "--state", string(state), "--limit", "1000", "-o", "jsonl",
		"-q")) {
		var it struct{ Key string }
		if err := json.Unmarshal([]byte(line), &it); err != nil {
			m.t.Fatalf("%s: %v", line, err)
		}
		keys = append(keys, it.Key)
	}
	return keys
}

// A daemon that sends a hundred mails at a time is killed while it waits for answers. The mails that it had begun are
// in doubt; another process sends the others. No recipient gets two mails.
func TestKilledMailer(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		const n, most = 250, 100
		server := newGated(t)
		m.addMails(n)
		work := []string{"work", "--kind", "mail", "--lease", "5s", "-q", "--with", "server=" + server.Addr, "--with",
			"from=news@example.com", "--with", "tls=none"}
		victim := m.start(append(work, "-j", strconv.Itoa(most))...)
		m.until("some wait for their answer", func() bool { return len(server.received()) >= 20 })
		must.OK(t, victim.Process.Kill())
		<-victim.done
		held := m.run(failure.ExitOK, "ls", "--state", "leased", "--limit", "1000", "-o", "jsonl", "-q")
		if claimed := strings.Count(held, "\n"); claimed > most {
			t.Errorf("%d mails were claimed to send %d at a time", claimed, most)
		}
		server.open()
		said := m.run(failure.ExitUnfinished, append(work, "--drain")...)
		doubtful, got := m.keys(ledger.StateDoubt), server.received()
		if len(doubtful) < 20 || len(doubtful) > most {
			t.Errorf("%d mails are in doubt, of which 20 to 100 had been begun", len(doubtful))
		}
		if want := fmt.Sprintf("doubt %d ", len(doubtful)); !strings.Contains(said, want) {
			t.Errorf("it printed %q, without %q", said, want)
		}
		for i := range n {
			to := fmt.Sprintf("%d@example.com", i)
			if c := got[to]; c != 1 && !(c == 0 && slices.Contains(doubtful, to)) {
				t.Errorf("%s got %d mails", to, c)
			}
		}
		if done := len(m.keys(ledger.StateDone)); done+len(doubtful) != n {
			t.Errorf("%d are done and %d in doubt, want %d in all", done, len(doubtful), n)
		}
		m.run(failure.ExitOK, "db", "verify")
	})
}
