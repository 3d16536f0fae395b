package sqlite_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// A commit of another process, or of another connection of this process, wakes; a commit of the store itself does not.
func TestWatch(t *testing.T) {
	path := newPath(t)
	s := mustOpen(t, path, sqlite.Options{})
	l := ledger.New(s, ledger.Options{})
	others := ledger.New(mustOpen(t, path, sqlite.Options{}), ledger.Options{})
	first, second := sqlite.Woken(t, s), sqlite.Woken(t, s)
	wait := func(c chan string, what string) {
		t.Helper()
		select {
		case kind := <-c:
			if kind != "" {
				t.Errorf("%s: kind %q", what, kind)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: no waiter was woken", what)
		}
	}
	wait(first, "at first") // earlier commits may be reported as well
	wait(second, "at first")
	for range 3 {
		must.Do(t)(others.Add(t.Context(), numbered(1)...))
		wait(first, "a commit")
		wait(second, "a commit")
	}
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "own"}))
	if _, err := others.Count(t.Context(), ledger.Filter{}); err != nil { // reading wakes no subscriber
		t.Fatal(err)
	}
	select {
	case <-first:
		t.Error("woken by an own commit")
	case <-time.After(100 * time.Millisecond): // time for many checks
	}
}
