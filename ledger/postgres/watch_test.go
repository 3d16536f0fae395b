package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// The commit of a caller's transaction wakes those who wait in other processes, and not only their next look.
func TestCommitOfTheCallerIsHeard(t *testing.T) {
	r := newRig(t)
	other, err := postgres.Open(t.Context(), r.pool, postgres.Options{Schema: r.schema})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ctx, cancel := context.WithCancel(t.Context())
	hints := make(chan string, 100)
	var listening sync.WaitGroup
	listening.Go(func() { ledger.New(other, ledger.Options{}).Subscribe(ctx, hints) })
	defer listening.Wait()
	defer cancel()
	hear := func(kind string) {
		t.Helper()
		for late := time.After(time.Minute); ; {
			select {
			case got := <-hints:
				if got == kind {
					return
				}
			case <-late:
				t.Fatalf("nothing is heard of kind %q", kind)
			}
		}
	}
	hear("") // it listens
	for name, begin := range r.begins(t) {
		tx, commit, _ := begin()
		kind := strings.NewReplacer(".", "-", ", ", "-").Replace(strings.ToLower(name))
		if _, err := r.AddTx(t.Context(), tx, ledger.NewItem{Kind: kind, Key: "x"}); err != nil {
			t.Fatal(err)
		}
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		hear(kind)
	}
}
