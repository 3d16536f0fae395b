package ui

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// limitsData are the limits of kinds, and the locks.
type limitsData struct {
	Limits []limit
	Locks  []answer.Lock
	Whole  bool     // the user may read the locks; with a token that is bound to kinds they are hidden
	Full   []string // kinds with ready items and as many leased items as they may have
	Lines  []string
}

// limit is a kind with limits, and how its items stand.
type limit struct {
	answer.Kind
	Leased, Ready int64
	State         string        // why no further item can be claimed; "" if no reason is known
	Next          string        // when the next item can be claimed, in words; "": now, or not known
	Holders       []answer.Item // leased items
	Waits         []waits       // if there is a limit for each shard key
	Newest        bool          // only the newest items were counted for Waits
}

// waits is how many items are ready under a shard key.
type waits struct {
	Key   string
	Ready int64
}

const (
	maxAsked   = 10 // kinds for which the page reads Next, Holders and Waits
	maxHolders = 10 // leased items, and shard keys, of one kind
)

// next returns when the next ready item of a kind can be claimed, as the API explains it for the first ready item.
func (v *view) next(kind string) (string, error) {
	first, err := get[answer.List[answer.Item]](v, "/items", url.Values{"where": {"kind:" + kind + " state:ready"},
		"limit": {"1"}})
	if err != nil || len(first.Items) == 0 {
		return "", err
	}
	why, err := get[answer.Why](v, "/items/"+strconv.FormatInt(first.Items[0].ID, 10)+"/why", nil)
	switch {
	case err != nil && problemOf(err).Code != "not_found": // the item may have been forgotten meanwhile
		return "", err
	case why.Code == "max_running":
		return "when one that is leased has ended", nil
	case !time.Time(why.Until).IsZero():
		return moment(why.Until) + " UTC", nil
	}
	return "", nil
}

// holders reads the leased items of a kind, and the shard keys with the most ready items.
func (v *view) holders(row *limit) error {
	inState := "kind:" + row.Kind.Kind + " state:"
	most := strconv.Itoa(maxHolders)
	if row.Leased > 0 {
		leased, err := get[answer.List[answer.Item]](v, "/items", url.Values{"where": {inState + "leased"}, "limit": {most}})
		if err != nil {
			return err
		}
		row.Holders = leased.Items
	}
	if row.Ready == 0 || row.PerKey == 0 && row.RatePerKey == "0" {
		return nil
	}
	ready, err := get[answer.Groups](v, "/items/groups", url.Values{"by": {"shard_key"}, "where": {inState + "ready"},
		"limit": {most}})
	row.Newest = !ready.Whole
	for _, g := range ready.Items {
		w := waits{Ready: g.Left}
		if json.Unmarshal(g.Value, &w.Key) == nil {
			row.Waits = append(row.Waits, w)
		}
	}
	return err
}

func limits(v *view) (any, error) {
	d := limitsData{Lines: []string{"ledgerd kind ls", "GET /api/v1/kinds", "ledgerd lock ls", "GET /api/v1/locks"}}
	kinds, err := get[answer.List[answer.Kind]](v, "/kinds", nil)
	if err != nil {
		return d, err
	}
	s, err := v.stats()
	if err != nil {
		return d, err
	}
	for _, k := range kinds.Items {
		if k.Limits == "" && !k.Paused {
			continue
		}
		row := limit{Kind: k}
		if i := slices.IndexFunc(s.Kinds, func(have answer.KindStats) bool { return have.Kind == k.Kind }); i >= 0 {
			row.Leased, row.Ready = s.Kinds[i].Leased, s.Kinds[i].Ready
		}
		switch {
		case k.Paused:
			row.State = "paused"
		case k.MaxRunning > 0 && row.Leased >= int64(k.MaxRunning):
			row.State = "as many run as may"
			if row.Ready > 0 {
				d.Full = append(d.Full, k.Kind)
			}
		}
		d.Limits = append(d.Limits, row)
	}
	slices.SortStableFunc(d.Limits, func(a, b limit) int { return cmp.Compare(b.Ready, a.Ready) })
	for i := range d.Limits[:min(maxAsked, len(d.Limits))] {
		row := &d.Limits[i]
		if row.Ready > 0 && !row.Paused {
			if row.Next, err = v.next(row.Kind.Kind); err != nil {
				return d, err
			}
		}
		if err = v.holders(row); err != nil {
			return d, err
		}
	}
	locks, err := get[answer.List[answer.Lock]](v, "/locks", nil)
	d.Locks, d.Whole = locks.Items, !outOfScope(err)
	if !d.Whole {
		err = nil
	}
	return d, err
}
