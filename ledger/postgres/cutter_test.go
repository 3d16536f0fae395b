package postgres_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// cutter is a proxy before the server that breaks a connection at its next COMMIT: after the
// server has got it, or before.
type cutter struct {
	net.Listener
	server string
	cut    atomic.Int32 // 0 nothing, 1 after the server got it, 2 before
	conns  sync.WaitGroup
}

func newCutter(t *testing.T) (*cutter, string) {
	t.Helper()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, server: u.Host}
	c.conns.Go(c.serve)
	t.Cleanup(func() {
		l.Close()
		c.conns.Wait()
	})
	return c, with(t, pgtest.URL(t), func(u *url.URL) { u.Host = l.Addr().String() })
}

func (c *cutter) serve() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			client.Close()
			return
		}
		c.conns.Go(func() {
			defer client.Close()
			io.Copy(client, server)
		})
		c.conns.Go(func() {
			defer server.Close()
			c.forward(server, client)
		})
	}
}

// forward copies what the client says, message by message as it arrives.
func (c *cutter) forward(server, client net.Conn) {
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if n > 0 && bytes.Contains(buf[:n], []byte("COMMIT\x00")) {
			switch c.cut.Swap(0) {
			case 1: // the client never hears of it
				client.(*net.TCPConn).CloseWrite()
				client.(*net.TCPConn).SetLinger(0)
				server.Write(buf[:n])
				server.(*net.TCPConn).CloseWrite() // a reset would reach the server before it is done
				client.Close()
				io.Copy(io.Discard, server)
				return
			case 2:
				client.(*net.TCPConn).SetLinger(0)
				return
			}
		}
		if n > 0 {
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Nobody can know what became of a commit whose answer is missing; it is said so, and nothing
// is run again behind the caller's back.
func TestCommitWithoutAnswer(t *testing.T) {
	proxy, target := newCutter(t)
	s, err := postgres.Connect(t.Context(), target, postgres.Options{Schema: pgtest.Schema(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "first"}); err != nil {
		t.Fatal(err)
	}
	for name, where := range map[string]int32{"landed": 1, "not landed": 2} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			proxy.cut.Store(where)
			err := s.Update(t.Context(), nil, func(tx ledger.Tx) error {
				runs++
				_, err := tx.Insert([]ledger.Record{{Identity: ledger.Identity{Kind: "k", Key: name}, Epoch: 1, Work: &ledger.Work{State: ledger.StateReady, Epoch: 1}}})
				return err
			})
			if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "may or may not") || runs != 1 {
				t.Fatalf("%d runs, %v", runs, err)
			}
			// The server has got the commit, but may not have come to it yet.
			for tick, until := time.Tick(5*time.Millisecond), time.Now().Add(10*time.Second); where == 1 && time.Now().Before(until); <-tick {
				if _, err := l.Find(t.Context(), "k", "", name); err == nil {
					break
				}
			}
			// Repeating it is safe in both cases.
			added, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: name})
			if err != nil {
				t.Fatal(err)
			}
			want := map[int32]ledger.Verdict{1: ledger.VerdictKnown, 2: ledger.VerdictAdded}[where]
			if added[0].Verdict != want {
				t.Errorf("repeated: %s, want %s", added[0].Verdict, want)
			}
		})
	}
}

// A finish whose answer was lost is recognised when it is repeated.
func TestFinishWithoutAnswer(t *testing.T) {
	proxy, target := newCutter(t)
	s, err := postgres.Connect(t.Context(), target, postgres.Options{Schema: pgtest.Schema(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}); err != nil {
		t.Fatal(err)
	}
	ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	if err != nil || len(ls) != 1 {
		t.Fatalf("%d leases, %v", len(ls), err)
	}
	proxy.cut.Store(1)
	if err := l.Finish(t.Context(), ledger.Ending{Lease: ls[0], Result: ledger.Permanent(errors.New("no"))})[0]; err != nil {
		t.Fatal(err)
	}
	as, err := l.Attempts(t.Context(), ls[0].ID)
	if err != nil || len(as) != 1 || as[0].Outcome != ledger.OutcomeFailed {
		t.Fatalf("%+v, %v", as, err)
	}
}
