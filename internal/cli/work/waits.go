package work

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// WaitsLine describes what a program waits for. It asks the ledger at most every waitsEvery.
type WaitsLine struct {
	Waits *runner.Waits

	mu   sync.Mutex
	at   time.Time // of the last look
	line string
}

const (
	waitsEvery = 2 * time.Second // between two reads of the ledger
	waitsTime  = time.Second     // bounds a read
)

// Text returns "waits for 2 items that …"; "" while the program works items itself.
func (w *WaitsLine) Text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.at) < waitsEvery {
		return w.line
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitsTime)
	defer cancel()
	if now, err := w.Waits.Look(ctx); err == nil {
		w.line = waitingText(now)
	}
	w.at = time.Now()
	return w.line
}

func waitingText(w runner.Waiting) string {
	if w.NextDue.IsZero() {
		return holdersText(w.Holders)
	}
	text := "the next is due " + report.Local(w.NextDue)
	if w.Error != "" {
		text += "; the last that was put off: " + report.Safe(w.Error)
	}
	return text
}

// holdersText names the holders of items. For a program without a heartbeat it proposes the command that releases them.
func holdersText(holders []ledger.Holder) string {
	var parts []string
	for _, h := range holders {
		part := fmt.Sprintf("%s that %s", report.Plural(h.Items, "item"), report.Safe(h.Agent))
		switch {
		case !h.SeenAt.IsZero():
			part += fmt.Sprintf(" holds until %s (not heard of since %s); free them: %s", report.Local(h.Until),
				report.Local(h.SeenAt), report.Safe(app.Words(h.Release())))
		case h.Person:
			part += " holds until " + report.Local(h.Until)
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

// sayIdle prints what a worker of these kinds waits for, if nothing is ready at its start.
func sayIdle(ctx context.Context, a *app.App, l ledgers.Any, kinds []string, shard scheduler.Shard) {
	next, idle := runner.NextDue(ctx, l, kinds, shard)
	if !idle {
		return
	}
	line := "no kinds to work yet; waits for kinds"
	if len(kinds) > 0 {
		line = "working kinds " + strings.Join(kinds, ", ") + ": nothing to do now"
		if !next.IsZero() {
			line += ", the next is due " + report.Local(next)
		}
		line += "; waits for new items"
	}
	fmt.Fprintln(a.Stderr, line+" (Ctrl-C ends it; --drain ends by itself)")
}
