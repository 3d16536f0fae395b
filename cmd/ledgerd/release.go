package main

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// forced takes leases from their holders.
var forced = act{name: "release", hint: "only what somebody holds can be taken",
	fine: []ledger.State{ledger.StateReady, ledger.StateWaiting},
	on: map[ledger.State]change{ledger.StateLeased: {apply: func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error) {
		return l.ForceRelease(ctx, actor(), f)
	}}}}

// onlyTokens refuses names of items: a claim is handed back by its token.
func onlyTokens(names []string) error {
	for _, name := range names {
		if _, _, err := ledger.ParseToken(name); err != nil {
			return usage("usage", "claim prints them; by id or filter: ledgerd finish --outcome released --where id:17 --force",
				"%q is no token ID.ATTEMPT, such as 17.3", name)
		}
	}
	return nil
}

// releaseExpired takes back all that has expired, step by step.
func (a *app) releaseExpired(ctx context.Context) error {
	l, err := a.open(ctx)
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
	err = one(a, struct {
		Released int `json:"released"`
	}{released}, fmt.Sprintf("released %d", released))
	if err == nil && released == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}
