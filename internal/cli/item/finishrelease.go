package item

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/ledger"
)

// forceRelease is the act of finish --outcome released --where --force: it takes leases from their holders.
var forceRelease = bulk{name: "finish", hint: "only what somebody holds can be taken",
	mayStay: []ledger.State{ledger.StateReady, ledger.StateWaiting},
	changes: map[ledger.State]eligible{ledger.StateLeased: {}},
	change: func(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.ActOption) error {
		_, err := l.ForceRelease(ctx, app.Actor(), f, tell)
		return err
	}}

// onlyTokens refuses names of items: a claim is handed back by its token.
func onlyTokens(names []string) error {
	for _, name := range names {
		if _, _, err := ledger.ParseToken(name); err != nil {
			return failure.Usage("usage", "claim prints them; by id or filter: ledgerd finish --outcome released --where "+
				"id:17 --force",
				"%q is not a token ID.ATTEMPT, such as 17.3", name)
		}
	}
	return nil
}

// releaseExpired ends all expired leases, up to upkeepLimit in each transaction.
func releaseExpired(ctx context.Context, a *app.App) error {
	l, err := a.Open(ctx, app.ToWork)
	if err != nil {
		return err
	}
	defer l.Close()
	released := 0
	for {
		n, err := l.Expire(ctx, upkeepLimit)
		if err != nil {
			return err
		}
		if released += n; n == 0 {
			break
		}
	}
	err = app.One(a, struct {
		Released int `json:"released"`
	}{released}, fmt.Sprintf("released %d", released))
	return a.OrExitEmpty(released, err)
}
