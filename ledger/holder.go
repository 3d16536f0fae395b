package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/act"
)

// Holder is an agent that has leased items. An agent without a heartbeat is a person or a script.
type Holder struct {
	Agent string
	Items int64     // its leased items, of the items that were asked about
	Until time.Time // when its last lease expires unless renewed
	// SeenAt is the last heartbeat of a program whose heartbeat has run out, or that is known to be gone. For any other
	// holder it is zero.
	SeenAt time.Time
	Person bool
}

// Release returns the act that takes the leases back. It is for a program that sends no heartbeat any more (SeenAt);
// any other holder may be at work.
func (h Holder) Release() act.Act { return act.Act{Name: act.Release, Agent: h.Agent} }

// Holders returns the agents that have leased items for which f matches and take returns true, by name.
func (l *Ledger) Holders(ctx context.Context, f Filter, take func(Item) bool) ([]Holder, error) {
	f = f.And(Filter{States: []State{StateLeased}})
	var all []Holder
	for it, err := range l.List(ctx, f, 0) {
		if err != nil {
			return nil, err
		}
		if !take(it) {
			continue
		}
		i := slices.IndexFunc(all, func(h Holder) bool { return h.Agent == it.Agent })
		if i < 0 {
			i, all = len(all), append(all, Holder{Agent: it.Agent, Person: true})
		}
		h := &all[i]
		if h.Items++; it.ExpiresAt.After(h.Until) {
			h.Until = it.ExpiresAt
		}
	}
	slices.SortFunc(all, func(a, b Holder) int { return strings.Compare(a.Agent, b.Agent) })
	return all, l.addHeartbeats(ctx, all)
}

// addHeartbeats sets Person and SeenAt of holders, from the heartbeats.
func (l *Ledger) addHeartbeats(ctx context.Context, all []Holder) error {
	if len(all) == 0 {
		return nil
	}
	programs, err := l.store.Heartbeats(ctx)
	if err != nil {
		return err
	}
	live, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		h := &all[i]
		named := func(a Agent) bool { return a.Name == h.Agent }
		if p := slices.IndexFunc(programs, named); p >= 0 {
			h.Person = false
			if !slices.ContainsFunc(live, named) {
				h.SeenAt = programs[p].SeenAt
			}
		}
	}
	return nil
}

// whyLeased explains an item that is leased.
func (r *Record) whyLeased(it Item, h Holder, now time.Time) Reason {
	why := Reason{Code: "leased", Since: r.Work.LeasedAt, Until: it.ExpiresAt}
	switch {
	case !it.ExpiresAt.After(now):
		why.Text = fmt.Sprintf("%s had it (attempt %d), but its lease ended at %s; the next worker takes it back.", it.Agent,
			it.Attempt, inUTC(it.ExpiresAt))
		why.Acts = []act.Act{{Name: act.Work}}
		return why
	case h.SeenAt.IsZero():
		why.Text = fmt.Sprintf("%s works on it (attempt %d) since %s; the lease ends at %s unless renewed.", it.Agent,
			it.Attempt, inUTC(r.Work.LeasedAt), inUTC(it.ExpiresAt))
	default:
		why.Text = fmt.Sprintf("%s holds it (attempt %d) since %s and is not heard of since %s; the lease ends at %s.",
			it.Agent, it.Attempt, inUTC(r.Work.LeasedAt), inUTC(h.SeenAt), inUTC(it.ExpiresAt))
		why.Text += " A worker takes it back as soon as that is safe: at once if it runs on the same host and the program " +
			"is gone. Release it by force only if you are sure that the program is gone."
		why.Acts = []act.Act{{Name: act.Work, Kind: it.Kind}, h.Release()}
	}
	if r.Work.Cancel {
		why.Text += " It was asked to stop."
	}
	return why
}
