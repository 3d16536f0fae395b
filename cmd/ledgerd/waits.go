package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// waits says whom a command waits for that has nothing to do itself.
type waits struct {
	ledger *ledger.Ledger
	kinds  []string
	shard  ledger.Shard
	take   func(ledger.Item) bool // what it waits for, of what is leased of these kinds
	mine   func(agent string) bool

	mu   sync.Mutex
	at   time.Time // of the last look
	text string
}

const (
	waitsEvery = 2 * time.Second // how often it looks
	waitsTime  = time.Second     // that a look may take
)

// line is "waits for 2 items that …", "" while the command works itself. It asks the ledger now and then.
func (w *waits) line(p *report.Printer) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.at) < waitsEvery {
		return w.text
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitsTime)
	defer cancel()
	if holders, busy, err := w.holders(ctx); err == nil {
		w.text = waitsFor(p, holders)
		if w.text == "" && !busy {
			w.text = w.dueLater(ctx, p)
		}
	}
	w.at = time.Now()
	return w.text
}

// holders are those who have what the command waits for; none if it is busy itself.
func (w *waits) holders(ctx context.Context) (holders []ledger.Holder, busy bool, err error) {
	if len(w.kinds) == 0 {
		return nil, false, nil
	}
	holders, err = w.ledger.Holders(ctx, ledger.Filter{Kinds: w.kinds}, w.take)
	if slices.ContainsFunc(holders, func(h ledger.Holder) bool { return w.mine(h.Agent) }) {
		return nil, true, err
	}
	return holders, false, err
}

// dueLater is "the next is due …: " and why the item waits that was put off last, "" if something is ready.
func (w *waits) dueLater(ctx context.Context, p *report.Printer) string {
	next, idle := nextDue(ctx, w.ledger, w.kinds, w.shard)
	if !idle || next.IsZero() {
		return ""
	}
	text := "the next is due " + p.Local(next)
	last, err := w.ledger.Recent(ctx, ledger.Filter{Kinds: w.kinds, States: []ledger.State{ledger.StateWaiting}}, 1)
	if err == nil && len(last) == 1 && last[0].Error != "" {
		text += "; the last that was put off: " + report.Safe(last[0].Error)
	}
	return text
}

// nextDue is when the first item of these kinds and the shard is due, zero if none waits; idle says that none is
// ready now.
func nextDue(ctx context.Context, l *ledger.Ledger, kinds []string, shard ledger.Shard) (next time.Time, idle bool) {
	for _, kind := range kinds {
		st, err := l.StandingIn(ctx, kind, shard)
		if err != nil || st.Ready > 0 {
			return time.Time{}, false
		}
		if !st.NextDue.IsZero() && (next.IsZero() || st.NextDue.Before(next)) {
			next = st.NextDue
		}
	}
	return next, true
}

// waitsFor names holders and, of programs that are not heard of any more, what frees their items.
func waitsFor(p *report.Printer, holders []ledger.Holder) string {
	var parts []string
	for _, h := range holders {
		part := fmt.Sprintf("%s that %s", plural(h.Items, "item"), report.Safe(h.Agent))
		switch {
		case h.Free() != "":
			part += fmt.Sprintf(" holds until %s (not heard of since %s); free them: %s", p.Local(h.Until), p.Local(h.SeenAt), report.Safe(h.Free()))
		case h.Person:
			part += " holds until " + p.Local(h.Until)
		default: // it renews its leases
			part += " works on"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return ""
	}
	return "waits for " + strings.Join(parts, ", and for ")
}

// sayIdle says what the workers wait for, if there is nothing to do at their start.
func (c *crew) sayIdle(ctx context.Context, handlers map[string]worker.Handler) {
	kinds := slices.Sorted(maps.Keys(handlers))
	next, idle := nextDue(ctx, c.ledger.Ledger, kinds, c.flags.shard.Shard)
	if !idle {
		return
	}
	line := "no kinds to work yet; waits for kinds"
	if len(kinds) > 0 {
		line = "working kinds " + strings.Join(kinds, ", ") + ": nothing to do now"
		if !next.IsZero() {
			line += ", the next is due " + c.app.printer().Local(next)
		}
		line += "; waits for new items"
	}
	fmt.Fprintln(c.app.stderr, line+" (Ctrl-C ends it; --drain ends by itself)")
}

// waitsOf is what a drain of these kinds waits for.
func (c *crew) waitsOf(handlers map[string]worker.Handler) *waits {
	return &waits{ledger: c.ledger.Ledger, kinds: slices.Sorted(maps.Keys(handlers)), shard: c.flags.shard.Shard,
		take: func(it ledger.Item) bool { return c.flags.shard.Covers(it.Slot) }, mine: func(agent string) bool { return agent == c.me.Name }}
}
