package tables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
)

// BusyError names the programs at work on a ledger.
type BusyError struct {
	Agents  []string // programs whose heartbeat has not run out
	Leased  int64    // items that are leased, also beyond their time
	Holders []string // of these, by name
	Locks   []string // named locks that are held, with their holders
}

// maxNames is how many names a BusyError tells.
const maxNames = 5

func (e *BusyError) Error() string {
	var parts []string
	if len(e.Agents) > 0 {
		parts = append(parts, "agents at work: "+names(e.Agents))
	}
	if e.Leased > 0 {
		parts = append(parts, fmt.Sprintf("%d leased, by %s", e.Leased, names(e.Holders)))
	}
	if len(e.Locks) > 0 {
		parts = append(parts, "locks held: "+names(e.Locks))
	}
	return strings.Join(parts, "; ")
}

func names(all []string) string {
	if len(all) > maxNames {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNames], ", "), len(all)-maxNames)
	}
	return strings.Join(all, ", ")
}

// Quiet returns nil if no program works on a ledger: no heartbeat is in force, nothing is leased and no named lock is
// held. Else the error is a *BusyError. The answer is about this moment.
func Quiet(ctx context.Context, l *ledger.Ledger) error {
	agents, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	busy := &BusyError{}
	for _, a := range agents {
		busy.Agents = append(busy.Agents, a.Name)
	}
	leased, err := l.LeasedBy(ctx)
	if err != nil {
		return err
	}
	busy.Holders = slices.Sorted(maps.Keys(leased))
	for _, n := range leased {
		busy.Leased += n
	}
	held, now, err := l.LockStore().Locks(ctx, "")
	if err != nil {
		return err
	}
	for _, k := range held {
		if k.Token != uuid.Nil && now.Before(k.ExpiresAt) {
			busy.Locks = append(busy.Locks, k.Name+" by "+k.Holder)
		}
	}
	if len(busy.Agents) == 0 && busy.Leased == 0 && len(busy.Locks) == 0 {
		return nil
	}
	return busy
}

// lookEvery is how often WaitQuiet looks.
const lookEvery = time.Second

// WaitQuiet calls Quiet until it returns nil or patience is over.
func WaitQuiet(ctx context.Context, l *ledger.Ledger, patience time.Duration) error {
	tick := time.Tick(min(lookEvery, max(patience, time.Millisecond)))
	for until := time.Now().Add(patience); ; {
		err := Quiet(ctx, l)
		if _, busy := err.(*BusyError); !busy || !time.Now().Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
	}
}
