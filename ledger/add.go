package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Add adds items, 1 … MaxBatch, in one transaction, and answers for each in the same order.
// Adding an item twice is not an error. All or nothing: *InvalidError names the first bad item.
func (l *Ledger) Add(ctx context.Context, items ...NewItem) ([]Added, error) {
	added, err := l.add(ctx, nil, items, nil)
	if err != nil {
		return nil, err
	}
	for i := range items {
		if i == 0 || items[i].Kind != items[i-1].Kind { // most are of one kind
			l.kinds.Store(items[i].Kind, true)
		}
	}
	l.announceAdded(items, added)
	return added, nil
}

// AddTx is Add inside the caller's transaction: the items exist if and only if it commits.
func (l *Ledger) AddTx(ctx context.Context, tx Conn, items ...NewItem) ([]Added, error) {
	return l.add(ctx, tx, items, nil)
}

// errTried ends a transaction that must leave no trace.
var errTried = errors.New("tried")

// Try answers what Add would, and adds nothing: new items have no id.
func (l *Ledger) Try(ctx context.Context, items ...NewItem) ([]Added, error) {
	added, err := l.add(ctx, nil, items, errTried)
	if !errors.Is(err, errTried) {
		return nil, err
	}
	for i := range added {
		if added[i].Verdict == VerdictAdded {
			added[i].ID = 0
		}
	}
	return added, nil
}

// add adds items in a transaction, which it commits unless it is to end with an error.
func (l *Ledger) add(ctx context.Context, conn Conn, items []NewItem, end error) ([]Added, error) {
	c := checker{}
	c.batch("items", len(items))
	for i := 0; i < len(items) && c.err == nil; i++ {
		c.index = i
		c.item(items[i])
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := l.fit(ctx, conn); err != nil {
		return nil, err
	}
	var added []Added
	err := l.store.Update(ctx, conn, func(tx Tx) (err error) {
		if added, err = l.addIn(tx, items); err == nil {
			err = end
		}
		return err
	})
	return added, err
}

func (l *Ledger) announceAdded(items []NewItem, added []Added) {
	var kinds []string
	for i, a := range added {
		if a.State == StateReady && a.Verdict != VerdictKnown && a.Verdict != VerdictDiffers && !slices.Contains(kinds, items[i].Kind) {
			kinds = append(kinds, items[i].Kind)
		}
	}
	l.announce(kinds)
}

func identity(n *NewItem) Identity { return Identity{n.Kind, n.Scope, n.Key} }

func compareIdentity(a, b Identity) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Key, b.Key))
}

// addIn adds valid items within a transaction.
func (l *Ledger) addIn(tx Tx, items []NewItem) ([]Added, error) {
	if err := l.ensureKinds(tx, items); err != nil {
		return nil, err
	}
	if err := gateKinds(tx, items); err != nil {
		return nil, err
	}
	added := make([]Added, len(items))
	// Everybody locks in one order, so that two adds of the same keys never deadlock.
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareIdentity(identity(&items[a]), identity(&items[b])) })
	for len(order) > 0 { // once, unless the batch names an item twice: then in the order given
		var wave, rest []int
		for k, i := range order {
			if k > 0 && identity(&items[order[k-1]]) == identity(&items[i]) {
				rest = append(rest, i)
			} else {
				wave = append(wave, i)
			}
		}
		if err := addDistinct(tx, items, wave, added); err != nil {
			return nil, err
		}
		order = rest
	}
	return added, nil
}

// ensureKinds gives every kind a row, without touching the policy of one that is there.
func (l *Ledger) ensureKinds(tx Tx, items []NewItem) error {
	var names []string
	for i := range items {
		if k := items[i].Kind; len(names) == 0 || names[len(names)-1] != k {
			if _, known := l.kinds.Load(k); !known {
				names = append(names, k)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return tx.EnsureKinds(slices.Compact(names))
}

// addDistinct adds the items with the given indices, sorted by identity and distinct.
func addDistinct(tx Tx, items []NewItem, indices []int, added []Added) error {
	recs := make([]Record, len(indices))
	for k, i := range indices {
		recs[k] = newRecord(&items[i], tx.Now)
	}
	ids, err := tx.Insert(recs)
	if err != nil {
		return err
	}
	var known []int // indices into items
	var keys []Identity
	for k, i := range indices {
		if ids[k] != 0 {
			added[i] = Added{ids[k], VerdictAdded, recs[k].Work.State}
			continue
		}
		known = append(known, i)
		keys = append(keys, recs[k].Identity)
	}
	if len(known) == 0 {
		return nil
	}
	found, err := tx.LoadKeys(keys)
	if err != nil {
		return err
	}
	byKey := make(map[Identity]*Record, len(found))
	for i := range found {
		byKey[found[i].Identity] = &found[i]
	}
	var changes []Change
	for k, i := range known {
		rec := byKey[keys[k]]
		if rec == nil { // forgotten between the two statements: the caller repeats
			return ErrUnavailable
		}
		verdict, change := readd(rec, &items[i], tx.Now())
		change.regate(rec)
		added[i] = Added{rec.ID, verdict, rec.State()}
		if change != nil {
			changes = append(changes, *change)
			if change.Work != nil {
				added[i].State = change.Work.State
			}
		} else if rec.State() == StateWaiting && !rec.Work.Due.After(tx.Now()) {
			added[i].State = StateReady
		}
	}
	return tx.Apply(changes)
}

func newRecord(n *NewItem, now func() time.Time) Record {
	shard := cmp.Or(n.ShardKey, n.Key)
	r := Record{Identity: identity(n), Fingerprint: n.Fingerprint, Payload: n.Payload, ShardKey: n.ShardKey, Slot: Slot(shard),
		Every: n.Every, Zone: n.Zone, Resources: sortedResources(n.Resources), Source: n.Source, Epoch: 1}
	if len(r.Payload) == 0 {
		r.Payload = nil
	}
	r.Work = &Work{State: StateReady, Priority: n.Priority, Due: n.Due.UTC().Truncate(time.Microsecond), Epoch: 1, Gated: len(r.Resources) > 0}
	if n.Due.IsZero() {
		r.Work.Due = time.Time{}
	} else if n.Due.After(now()) {
		r.Work.State = StateWaiting
	}
	return r
}

// readd decides what adding a known item does; see the table in docs/design.md.
func readd(r *Record, n *NewItem, now time.Time) (Verdict, *Change) {
	state := r.State()
	if state == StateDoubt {
		return VerdictKnown, nil // a person decides
	}
	newer := n.Fingerprint != "" && r.Fingerprint != "" && n.Fingerprint != r.Fingerprint
	if n.Every != "" && (n.Every != r.Every || n.Zone != r.Zone) && state != StateCancelled {
		return VerdictChanged, reschedule(r, n, newer, now)
	}
	if newer && state != StateCancelled {
		return VerdictChanged, change(r, n, state, now)
	}
	a := n.Again
	asked := !a.DoneBefore.IsZero() && r.Last != nil && r.Last.FinishedAt.Before(a.DoneBefore)
	over := r.roundOver(now)
	failed := over && r.Last.closes() == RoundFailed
	switch {
	case state == StateDead && a.Dead, failed && asked, failed && a.Dead && !bytes.Equal(n.payloadOver(r), r.Payload):
		return VerdictReopened, &Change{ID: r.ID, Item: itemChange(r, n, r.Epoch), Work: r.fresh(r.Work.Epoch, now)}
	case state == StateCancelled && a.Cancelled, (state == StateDone || over) && asked:
		return VerdictReopened, &Change{ID: r.ID, Item: itemChange(r, n, r.Epoch+1), Work: reopened(r, n, now)}
	}
	if newer { // and cancelled: a person took it back, a newer version does not bring it in again
		return VerdictKnown, nil
	}
	verdict := VerdictKnown
	if (len(r.Payload) > 0 || r.Work != nil) && !bytes.Equal(n.payloadOver(r), r.Payload) {
		verdict = VerdictDiffers // a finished item without a payload may have been pruned
	}
	if r.Fingerprint == "" && n.Fingerprint != "" { // the version is told for the first time
		return verdict, &Change{ID: r.ID, Item: &ItemChange{Fingerprint: n.Fingerprint, Payload: r.Payload, Every: r.Every, Zone: r.Zone, Resources: r.Resources, Epoch: r.Epoch}}
	}
	return verdict, nil
}

// change opens an item whose fingerprint is another.
func change(r *Record, n *NewItem, state State, now time.Time) *Change {
	c := &Change{ID: r.ID}
	if r.roundOver(now) {
		state = StateDone // which is another round, too
	}
	switch state {
	case StateWaiting, StateReady:
		due, epoch := r.Work.Due, r.Epoch
		if r.attempted(now) { // the old version was tried: the new one is other work
			epoch++
			if due.After(now) { // for a retry
				due = now
			}
		}
		c.Item = itemChange(r, n, epoch)
		c.Work = r.fresh(epoch, due)
		if due.After(now) {
			c.Work.State = StateWaiting
		}
	case StateLeased: // the attempt that runs has its copy; a good end makes the new version ready
		c.Item = itemChange(r, n, r.Epoch+1)
		w := *r.Work
		w.Reopen = true
		c.Work = &w
	default:
		c.Item = itemChange(r, n, r.Epoch+1)
		c.Work = reopened(r, n, now)
	}
	return c
}

// reopened is the backlog row of the next round of a finished or dead item.
func reopened(r *Record, n *NewItem, now time.Time) *Work {
	w := r.fresh(r.Epoch+1, now)
	w.Priority = n.Priority
	if n.Due.After(now) {
		w.Due, w.State = n.Due.UTC().Truncate(time.Microsecond), StateWaiting
	}
	return w
}

// reschedule makes an item recurring, or recurring otherwise; a newer version of it is another opening.
func reschedule(r *Record, n *NewItem, newer bool, now time.Time) *Change {
	c := &Change{ID: r.ID, Item: itemChange(r, n, r.Epoch)}
	if newer || r.Work == nil || r.Work.State == StateDead {
		c.Item.Epoch++
	}
	e, err := ParseEvery(n.Every, n.Zone)
	if err != nil {
		return c
	}
	if r.Work != nil && r.Work.State == StateLeased { // its end counts in the new way, so it must be looked at
		w := *r.Work
		w.Reopen = true
		c.Work = &w
		return c
	}
	due := later(now, n.Due.UTC().Truncate(time.Microsecond))
	if start := e.Start(now); !newer && !r.DonePeriod.Before(start) {
		due = later(due, e.Next(start, now))
	}
	c.Work = r.fresh(c.Item.Epoch, due)
	c.Work.Priority = n.Priority
	if due.After(now) {
		c.Work.State = StateWaiting
	}
	return c
}

// regate makes the backlog row fit resources that are not those of before. An attempt that runs keeps
// what it holds; its end must be looked at.
func (c *Change) regate(r *Record) {
	if c == nil || c.Item == nil || slices.Equal(c.Item.Resources, r.Resources) || c.Work == nil && r.Work == nil {
		return
	}
	if c.Work == nil {
		w := *r.Work
		c.Work = &w
	}
	if c.Work.State == StateLeased {
		c.Work.Reopen = true
		return
	}
	c.Work.Gated, c.Work.PassedAt = len(c.Item.Resources) > 0, time.Time{}
}

func itemChange(r *Record, n *NewItem, epoch int64) *ItemChange {
	c := &ItemChange{Fingerprint: cmp.Or(n.Fingerprint, r.Fingerprint), Payload: n.payloadOver(r), Every: r.Every, Zone: r.Zone,
		Resources: sortedResources(n.Resources), Epoch: epoch}
	if len(n.Resources) == 0 {
		c.Resources = r.Resources
	}
	if n.Every != "" {
		c.Every, c.Zone = n.Every, n.Zone
	}
	return c
}
