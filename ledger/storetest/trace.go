package storetest

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// traceText has no state, otherText has one.
const (
	traceText = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	otherText = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00 congo=t61rcWkgMzE"
)

// addTrace: an item keeps the trace context of the caller that added it or opened it again, and its first attempt
// reports it as the first.
func addTrace(t *testing.T, h *harness) {
	within := tracing.Into(h.ctx, otherText)
	added, err := h.l.Add(within, ledger.NewItem{Kind: "k", Key: "of the context"},
		ledger.NewItem{Kind: "k", Key: "its own", Trace: traceText},
		ledger.NewItem{Kind: "k", Key: "malformed", Trace: "00-x"})
	h.ok(err)
	for i, want := range []string{otherText, traceText, otherText} {
		equal(t, "trace", h.item(added[i].ID).Trace, want)
	}
	id := h.add(ledger.NewItem{Kind: "j", Key: "x", Fingerprint: "1", Trace: traceText})[0].ID
	equal(t, "without", h.item(h.add(ledger.NewItem{Kind: "l", Key: "y", Trace: "\x00"})[0].ID).Trace, "")
	h.add(ledger.NewItem{Kind: "j", Key: "x", Fingerprint: "1", Trace: otherText})
	equal(t, "known", h.item(id).Trace, traceText)

	ls := h.claimOne("j")
	equal(t, "trace of the lease", ls.Trace, traceText)
	equal(t, "first attempt", ls.First(), true)
	h.end(ls, ledger.RetryAfter(time.Second, errTest))
	h.clock.advance(time.Minute)
	h.pass(0)
	ls = h.claimOne("j")
	equal(t, "second attempt is first", ls.First(), false)
	equal(t, "trace of the second attempt", ls.Trace, traceText)
	named, errs := h.l.LeasesOf(h.ctx, ls.FullToken()) // it has no trace of its own
	h.ok(errs[0])
	h.end(named[0], ledger.Done(nil, ledger.NewItem{Kind: "l", Scope: "s", Key: "child"},
		ledger.NewItem{Kind: "l", Scope: "s", Key: "traced child", Trace: otherText}))
	for key, want := range map[string]string{"child": traceText, "traced child": otherText} {
		it, err := h.l.Find(h.ctx, "l", "s", key)
		h.ok(err)
		equal(t, key, it.Trace, want)
	}

	h.add(ledger.NewItem{Kind: "j", Key: "x", Fingerprint: "2", Trace: otherText})
	ls = h.claimOne("j")
	equal(t, "trace of the new version", ls.Trace, otherText)
	equal(t, "first attempt of the new version", ls.First(), true)
	h.end(ls, ledger.Done(nil))
	h.add(ledger.NewItem{Kind: "j", Key: "x", Fingerprint: "3"})
	equal(t, "of an adder without", h.item(id).Trace, "")
}
