package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// The faults of a breaker: errors with which the server undoes a transaction, and the loss of the
// connection before a round trip reached the server or after the server has done it.
var faults = []string{"40001", "40P01", "55P03", lostBefore, lostAfter}

const (
	lostBefore = "lost before"
	lostAfter  = "lost after"
)

// breaker lets round trips to the server fail. It sits in the connections of its pool.
type breaker struct {
	*pgxpool.Pool

	mu     sync.Mutex
	fault  string
	left   int // round trips until it strikes; 0: it does not
	landed bool
}

func newBreaker(t testing.TB) *breaker {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	must.OK(t, err)
	b := &breaker{}
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		return &breakable{Conn: c, b: b}, err
	}
	if b.Pool, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// Break lets a fault strike the k-th round trip from now on, until mend is called.
func (b *breaker) Break(fault string, k int) (mend func() (landed bool)) {
	set := func(fault string, left int) (landed bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		landed = b.landed
		b.fault, b.left, b.landed = fault, left, false
		return landed
	}
	set(fault, k)
	return func() bool { return set("", 0) }
}

// strike returns the fault for a message before it is sent; "" if it is sent as it is.
func (b *breaker) strike(message []byte) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 || !roundTrip(message) {
		return ""
	}
	if b.left--; b.left > 0 {
		return ""
	}
	return b.fault
}

// types returns the type bytes of the messages that are sent to the server.
func types(sent []byte) (types string) {
	for len(sent) >= 5 && sent[0] != 0 {
		types += string(sent[0])
		sent = sent[min(len(sent), 1+int(binary.BigEndian.Uint32(sent[1:]))):]
	}
	return types
}

// roundTrip reports whether the messages are statements of the store that the server answers at once. Hints and the
// pool's pings do not count. Hints are sent on their own at any time.
func roundTrip(sent []byte) bool {
	return strings.ContainsAny(types(sent), "QS") && !bytes.Contains(sent, []byte("pg_notify")) &&
		!bytes.Contains(sent, []byte("-- ping"))
}

// breakable is a connection to the server.
type breakable struct {
	net.Conn
	b       *breaker
	broken  atomic.Bool
	reading sync.Mutex
}

func (c *breakable) Write(message []byte) (int, error) {
	switch fault := c.b.strike(message); fault {
	case "":
		return c.Conn.Write(message)
	case lostBefore, lostAfter:
		c.broken.Store(true)
		// On a busy machine pgx has begun to read by now, beside a write that takes it long.
		if err := c.Conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
			return 0, err
		}
		if fault == lostAfter {
			c.land(message)
		}
		return len(message), nil // what was sent is not known to have arrived
	default: // the server's own error; its transaction is as after any other error
		raise := &pgproto3.Query{String: fmt.Sprintf("DO $$BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '%s'; END$$",
			fault)}
		bad, err := raise.Encode(nil)
		if err != nil {
			return 0, err
		}
		_, err = c.Conn.Write(bad)
		return len(message), err
	}
}

// land sends a message and waits for the server's answer. It holds reading, because a read that is under way would take
// the answer away.
func (c *breakable) land(message []byte) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.Conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	if _, err := c.Conn.Write(message); err != nil {
		return
	}
	// In an open transaction nothing has taken effect. What was only prepared has not, either.
	if status := awaitReady(c.Conn); status == 'I' && strings.ContainsAny(types(message), "QE") {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		c.b.landed = true
	}
}

func (c *breakable) Read(p []byte) (n int, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if !c.broken.Load() {
		n, err = c.Conn.Read(p)
	}
	if c.broken.Load() {
		return 0, syscall.ECONNRESET
	}
	return n, err
}

// awaitReady reads messages up to the end of a round trip, and returns the status of the transaction: 'I' means that
// there is none. It returns 0 at an error, and at the message that lets a COPY begin.
func awaitReady(server net.Conn) (status byte) {
	for header := make([]byte, 5); ; {
		if _, err := io.ReadFull(server, header); err != nil {
			return 0
		}
		body := make([]byte, binary.BigEndian.Uint32(header[1:])-4)
		switch _, err := io.ReadFull(server, body); {
		case err != nil || header[0] == 'G':
			return 0
		case header[0] == 'Z':
			return body[0]
		}
	}
}

// TestLost: when a message is lost, a reader that already waits gets an error. With lostAfter the server has answered
// the message before.
func TestLost(t *testing.T) {
	for _, fault := range []string{lostBefore, lostAfter} {
		t.Run(fault, func(t *testing.T) { testLost(t, fault) })
	}
}

func testLost(t *testing.T, fault string) {
	ours, server := net.Pipe()
	defer server.Close()
	b := &breaker{}
	c := &breakable{Conn: ours, b: b}
	defer c.Close()
	read := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		read <- err
	}()
	for c.reading.TryLock() {
		c.reading.Unlock()
		runtime.Gosched()
	}
	query, err := (&pgproto3.Query{String: "SELECT 1"}).Encode(nil)
	must.OK(t, err)
	go func() {
		io.ReadFull(server, make([]byte, len(query)))
		server.Write([]byte{'Z', 0, 0, 0, 5, 'I'})
	}()
	mend := b.Break(fault, 1)
	must.Do(t)(c.Write(query))
	if err := <-read; !errors.Is(err, syscall.ECONNRESET) || mend() != (fault == lostAfter) {
		t.Errorf("the reader got %v", err)
	}
}

// A call is answered even if any one of its round trips fails so that the server undoes the transaction.
func TestUndoneAnywhere(t *testing.T) {
	b := newBreaker(t)
	s, err := postgres.Open(t.Context(), b.Pool, postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	for k := 1; k <= 8; k++ {
		item := ledger.NewItem{Kind: "k", Key: fmt.Sprint(k), Due: time.Now().Add(-time.Hour)}
		for name, add := range map[string]func(context.Context, ...ledger.NewItem) ([]ledger.Added, error){
			"try": l.Try, "add": l.Add} {
			mend := b.Break("40001", k)
			got, err := add(t.Context(), item)
			mend()
			if err != nil || got[0].State != ledger.StateReady {
				t.Errorf("%s, struck at %d: %+v, %v", name, k, got, err)
			}
		}
	}
	if n := s.Busy(); n < 1 || n > 16 {
		t.Errorf("busy %d times, of 16 faults that struck where there were as many round trips", n)
	}
}

// A rule that goes on after a statement failed writes nothing, whether its transaction had begun by
// then or not: it runs again.
func TestNothingAfterAFailure(t *testing.T) {
	b := newBreaker(t)
	s, err := postgres.Open(t.Context(), b.Pool, postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	for k := 1; k <= 6; k++ {
		failed := false
		mend := b.Break("40001", k)
		err := s.Update(t.Context(), nil, func(tx ledger.Tx) error {
			_, err := tx.LoadKeys([]ledger.Identity{{Kind: "k", Key: "x"}})
			if err == nil {
				return tx.EnsureKinds([]string{"whole"})
			}
			failed = true
			_ = tx.EnsureKinds([]string{"half"})
			return nil
		})
		mend()
		if err != nil {
			t.Errorf("struck at %d: %v", k, err)
		}
		kinds, err := s.Kinds(t.Context())
		if err != nil || len(kinds) != 1 || kinds[0].Name != "whole" {
			t.Errorf("struck at %d, a statement failed: %v; there are %v, %v", k, failed, kinds, err)
		}
	}
}
