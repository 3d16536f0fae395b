package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// mailServer is a real SMTP server on loopback. It accepts each mail at once, but answers only when its gate is open.
type mailServer struct {
	addr string
	gate chan struct{}

	mu    sync.Mutex
	mails map[string]int // by recipient
}

func newMailServer(t *testing.T) *mailServer {
	t.Helper()
	o := &mailServer{gate: make(chan struct{}), mails: map[string]int{}}
	srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		return &smtpSession{mailServer: o}, nil
	}))
	srv.ErrorLog = log.New(io.Discard, "", 0) // about clients that are killed
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	o.addr = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		o.open()
		_ = srv.Close()
		<-done
	})
	return o
}

// open opens the gate for all answers, from now on.
func (o *mailServer) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.gate:
	default:
		close(o.gate)
	}
}

// received counts the accepted mails of each recipient.
func (o *mailServer) received() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.mails)
}

// config returns the flags of a sender that uses the server.
func (o *mailServer) config() []string {
	return []string{"--with", "server=" + o.addr, "--with", "from=news@example.com", "--with", "tls=none"}
}

// smtpSession is one connection to the mailServer.
type smtpSession struct {
	*mailServer
	to string
}

func (c *smtpSession) Mail(string, *smtp.MailOptions) error { return nil }

func (c *smtpSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	c.to = to
	return nil
}

func (c *smtpSession) Data(r io.Reader) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	c.mu.Lock()
	c.mails[c.to]++
	c.mu.Unlock()
	<-c.gate
	return nil
}

func (c *smtpSession) Reset() {}

func (c *smtpSession) Logout() error { return nil }

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
		o := newMailServer(t)
		m.addMails(n)
		work := append([]string{"work", "--kind", "mail", "--lease", "5s", "-q"}, o.config()...)
		victim := m.start(append(work, "-j", strconv.Itoa(most))...)
		m.until("some wait for their answer", func() bool { return len(o.received()) >= 20 })
		must.OK(t, victim.Process.Kill())
		<-victim.done
		held := m.run(failure.ExitOK, "ls", "--state", "leased", "--limit", "1000", "-o", "jsonl", "-q")
		if claimed := strings.Count(held, "\n"); claimed > most {
			t.Errorf("%d mails were claimed to send %d at a time", claimed, most)
		}
		o.open()
		said := m.run(failure.ExitUnfinished, append(work, "--drain")...)
		doubtful, got := m.keys(ledger.StateDoubt), o.received()
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
