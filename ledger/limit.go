package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// applyEnds applies changes that end leases. It adds to kinds the kinds of leased recs, if they have limits: the end of
// a lease makes room, so another item may be claimed.
func applyEnds(tx Tx, recs []Record, changes []Change, kinds *[]string) error {
	for i := range recs {
		if w := recs[i].Work; w != nil && w.State == StateLeased && recs[i].Policy.Limits.Any() &&
			!slices.Contains(*kinds, recs[i].Kind) {
			*kinds = append(*kinds, recs[i].Kind)
		}
	}
	return tx.Apply(changes)
}

// itemsAre returns the subject of a sentence: "2 items of kind k are".
func itemsAre(n int, kind string) string {
	if n == 1 {
		return "1 item of kind " + kind + " is"
	}
	return fmt.Sprintf("%d items of kind %s are", n, kind)
}

func setLimit(kind, field string) []act.Act {
	return []act.Act{{Name: act.SetLimit, Kind: kind, Field: field}}
}

// whyHeldBack explains a ready item of a kind with limits. It returns w if the limits do not hold the item back.
func (r *Record) whyHeldBack(w Reason, k Kind, c scheduler.Usage) Reason {
	limits := k.Limits
	key := cmp.Or(r.ShardKey, r.Key)
	if n := limits.MaxRunning; n > 0 && c.Whole.Running >= n {
		return Reason{Code: "max_running", Since: w.Since, Acts: setLimit(k.Name, "max_running"),
			Text: fmt.Sprintf("It is ready, but %s leased and no more than %d may be.", itemsAre(c.Whole.Running, k.Name), n)}
	}
	if n := limits.MaxRunningPerShardKey; n > 0 && c.Key.Running >= n {
		return Reason{Code: "max_running", Since: w.Since, Acts: setLimit(k.Name, "max_running_per_shard_key"),
			Text: fmt.Sprintf("It is ready, but %s leased for its shard key %s and no more than %d may be.",
				itemsAre(c.Key.Running, k.Name), key, n)}
	}
	var wait time.Duration
	held := Reason{Code: "rate", Since: w.Since}
	for _, l := range []struct {
		rate  scheduler.Rate
		lane  scheduler.Lane
		of    string
		field string
	}{
		{limits.Rate, c.Whole, "kind " + k.Name, "rate"},
		{limits.RatePerShardKey, c.Key, "kind " + k.Name + " for its shard key " + key, "rate_per_shard_key"},
	} {
		if l.rate.Count == 0 {
			continue
		}
		if n, until := l.rate.Allows(c.Now, l.lane.Next, limits.Burst); n == 0 && until > wait {
			wait = until
			held.Until = c.Now.Add(until)
			held.Text = fmt.Sprintf("It is ready, but the rate of %s is %s; the next one may begin at %s.", l.of, l.rate,
				held.Until.UTC().Format("2006-01-02 15:04:05.000 MST"))
			held.Acts = setLimit(k.Name, l.field)
		}
	}
	if wait > 0 {
		return held
	}
	return w
}
