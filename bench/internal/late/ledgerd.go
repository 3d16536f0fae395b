package late

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/bench/internal/ours"
	"github.com/ledgerd/ledgerd/ledger"
)

func ledgerdOnPostgres(ctx context.Context, b *ours.Bench) (Outcome, error) {
	o, err := ledgerd(ctx, b.OnPostgres)
	o.Database = "Postgres"
	return o, err
}

func ledgerdOnSQLite(ctx context.Context, b *ours.Bench) (Outcome, error) {
	o, err := ledgerd(ctx, b.OnSQLite)
	o.Database = "SQLite"
	return o, err
}

// lease is how long the first worker has the item: the shortest lease that is allowed.
const lease = time.Second

// ledgerd lets two workers have one item of ledgerd, the second once the first one's lease has expired.
func ledgerd(ctx context.Context, on ours.On) (o Outcome, err error) {
	o.Queue = "ledgerd"
	place, err := ours.NewStanding(ctx, on, nil)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	l := place.Ledger
	if _, err := l.Add(ctx, ours.Items(0, 1)...); err != nil {
		return o, err
	}
	first, err := hold(ctx, "ledgerd", place.Address())
	if err != nil {
		return o, err
	}
	defer first.end()
	var second []*ledger.Lease
	if err := poll(ctx, func() (bool, error) {
		if _, err := l.Expire(ctx, 10); err != nil {
			return false, err
		}
		second, err = l.Claim(ctx, ledger.Claim{Kind: ours.Kind, Agent: "second", Limit: 1})
		return len(second) > 0, err
	}); err != nil {
		return o, err
	}
	if o.Told, err = first.finish(); err != nil {
		return o, err
	}
	item, err := l.Get(ctx, second[0].ID)
	if err != nil {
		return o, err
	}
	o.Accepted = item.State != ledger.StateLeased || item.Agent != "second"
	o.Then = fmt.Sprintf("%s by the %s worker, attempt %d", item.State, item.Agent, item.Attempt)
	end := l.Finish(ctx, ledger.Ending{Lease: second[0], Result: ledger.Fail(errors.New("the second worker failed"))})
	attempts, err := l.Attempts(ctx, item.ID)
	if err := errors.Join(append(end, err)...); err != nil {
		return o, err
	}
	var all []string
	for _, a := range attempts {
		all = append(all, fmt.Sprintf("attempt %d of the %s worker %s", a.Attempt, a.Agent, a.Outcome))
	}
	if item, err = l.Get(ctx, item.ID); err != nil {
		return o, err
	}
	o.End = fmt.Sprintf("item %s for another try: %s", item.State, strings.Join(all, ", "))
	return o, nil
}

// holdLedgerd is the first worker of ledgerd; it runs in a process of its own.
func holdLedgerd(ctx context.Context, address string) (told string, err error) {
	l, err := ours.OpenAddress(ctx, address)
	if err != nil {
		return "", err
	}
	defer l.Close()
	leases, err := l.Claim(ctx, ledger.Claim{Kind: ours.Kind, Agent: "first", Limit: 1, TTL: lease})
	if err != nil {
		return "", err
	}
	if len(leases) != 1 {
		return "", errors.New("nothing to claim")
	}
	if err := holding(); err != nil {
		return "", err
	}
	switch err := l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0]; {
	case errors.Is(err, ledger.ErrLeaseLost):
		return "ErrLeaseLost: " + err.Error(), nil
	case err != nil:
		return "", err
	}
	return "no error", nil
}
