package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// subscribeHints: every act that makes items ready notifies the subscribers in this process at once.
func subscribeHints(t *testing.T, h *harness) {
	ctx, cancel := context.WithCancel(h.ctx)
	hints := make(chan string, 100)
	var subscribed sync.WaitGroup
	subscribed.Go(func() { h.l.Subscribe(ctx, hints) })
	defer subscribed.Wait()
	defer cancel()
	heard := func(kind string) bool {
		for len(hints) > 0 {
			if <-hints == kind {
				return true
			}
		}
		return false
	}
	look := time.Tick(time.Millisecond)
	for n, late := 0, time.After(time.Minute); !heard("k"); n++ { // the subscription may not exist yet
		h.addOne(fmt.Sprint("first ", n))
		select {
		case <-look:
		case <-late:
			t.Fatal("nothing is heard of what is added")
		}
	}
	ready := func(what string, makeReady func()) {
		t.Helper()
		heard("")
		if makeReady(); !heard("k") {
			t.Errorf("nothing is heard when items become ready by %s", what)
		}
	}
	op := func(act func(context.Context, string, ledger.Filter, ...ledger.ActOption) (int64, error),
		f ledger.Filter) func() {
		return func() {
			n, err := act(h.ctx, "op", f)
			h.ok(err)
			if n == 0 {
				t.Error("nothing was changed")
			}
		}
	}
	ls := h.claim("k", 1000)
	ready("release", func() { h.end(ls[0], ledger.Release()) })
	ls = h.claim("k", 1)
	ready("force", op(h.l.ForceRelease, ledger.IDs(ls[0].ID)))
	ls = h.claim("k", 1)
	h.end(ls[0], ledger.Permanent(errTest))
	ready("retry", op(h.l.Retry, ledger.IDs(ls[0].ID)))
	ls = h.claim("k", 1)
	h.end(ls[0], ledger.Done(nil))
	ready("reopening", op(h.l.Reopen, ledger.IDs(ls[0].ID)))
	ls = h.claim("k", 1)
	ready("emitting", func() { h.end(ls[0], ledger.Done(nil, ledger.NewItem{Kind: "k", Key: "child"})) })
	ls = h.claim("k", 1)
	h.clock.advance(2 * time.Minute)
	ready("expiry", func() {
		_, err := h.l.Expire(h.ctx, 1000)
		h.ok(err)
	})
	h.add(ledger.NewItem{Kind: "k", Key: "later", Due: h.clock.now().Add(time.Hour)})
	h.clock.advance(2 * time.Hour)
	ready("time", func() {
		_, err := h.l.Promote(h.ctx, 1000)
		h.ok(err)
	})
}
