package ours

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// The cost of some work is counted for connections that stay open and for one that ends; an error of the work is
// returned.
func TestServerCost(t *testing.T) {
	url := pgtest.Start(t, pgtest.Options{}).URL()
	rows := func(n int) func() error {
		return func() error {
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				return err
			}
			_, err = conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS bulk (v text)")
			if err == nil {
				_, err = conn.Exec(t.Context(), "INSERT INTO bulk SELECT repeat('x', 1000) FROM generate_series(1, $1)", n)
			}
			return errors.Join(err, conn.Close(t.Context()))
		}
	}
	const n = 20_000
	s, err := ServerCost(t.Context(), url, n, rows(n))
	if err != nil || s["wal"] < 1000 || s["wal"] > 5000 || s["cpu"] <= 0 {
		t.Errorf("%d rows of 1,000 bytes: %v, %v", n, s, err)
	}
	broken := errors.New("broken")
	if _, err := ServerCost(t.Context(), url, n, func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("the failure of the work: %v", err)
	}
	ran := false
	if s, err := ServerCost(t.Context(), "", n, func() error { ran = true; return nil }); err != nil || len(s) > 0 || !ran {
		t.Errorf("without a server: %v, %v, ran %v", s, err, ran)
	}
}

// The processor time of a process is that of all its threads.
func TestOwnTime(t *testing.T) {
	before, err := ownTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for µs := before; µs-before < 50_000; { // the deadline of the test bounds it
		busy := make(chan int)
		go func() { // on another thread than this one
			n := 0
			for i := range 10_000_000 {
				n ^= i
			}
			busy <- n
		}()
		runtime.LockOSThread()
		<-busy
		runtime.UnlockOSThread()
		if µs, err = ownTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ownTime(1 << 30); err == nil {
		t.Error("a process that is not there has a processor time")
	}
}

// A process that is no backend leads to no server.
func TestServerOf(t *testing.T) {
	for _, pid := range []int{1, 1 << 30} {
		if server, ok := serverOf(pid); ok {
			t.Errorf("process %d is taken for a backend of %d", pid, server)
		}
	}
}
