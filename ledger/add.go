package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/payload"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// Add adds items, 1 … bounds.MaxBatch, in one transaction, and returns one answer for each in the same order. Adding an
// item twice is not an error. It adds all items or none: *InvalidError names the first bad item.
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
	if tx == nil {
		return nil, errNilTx
	}
	return l.add(ctx, tx, items, nil) // not announced: the commit is the caller's, and Store.Watch notices it
}

// errTried makes Try roll its transaction back.
var errTried = errors.New("tried")

// Try returns what Add would return, and adds nothing: new items have no id.
func (l *Ledger) Try(ctx context.Context, items ...NewItem) ([]Added, error) {
	added, err := l.add(ctx, nil, items, errTried)
	if !errors.Is(err, errTried) {
		return nil, err
	}
	rolledBack := map[int64]bool{} // ids of new items; later entries may have the same key
	for i := range added {
		if id := added[i].ID; added[i].Verdict == VerdictAdded || rolledBack[id] {
			rolledBack[id], added[i].ID = true, 0
		}
	}
	return added, nil
}

// add adds items in a transaction. It commits the transaction if end is nil; else it rolls it back and returns end.
func (l *Ledger) add(ctx context.Context, conn Conn, items []NewItem, end error) (added []Added, err error) {
	c := checker{}
	c.batch("items", len(items))
	for i := 0; i < len(items) && c.err == nil; i++ {
		c.index = i
		c.item(&items[i])
	}
	act, _ := ctx.Value(actKey{}).(*BulkAct)
	if act != nil && act.Actor != "" {
		c.agent(act.Actor)
	}
	if c.err != nil {
		return nil, c.err
	}
	if err := l.fit(ctx, conn); err != nil {
		return nil, err
	}
	var entry JournalEntry
	var reopened bool
	if end == nil { // not Try: a span is recorded
		var ended func(error)
		ctx, ended = l.tracer.Add(ctx, onlyKind(items), len(items))
		defer func() { ended(err) }()
	}
	items = withTrace(ctx, items)
	err = l.store.Update(ctx, conn, func(tx Tx) (err error) {
		if added, err = l.addIn(tx, items); err != nil {
			return err
		}
		if entry, reopened = act.reopenedBy(added); reopened {
			err = tx.Journal(entry)
		}
		return cmp.Or(err, end)
	})
	if err == nil && reopened {
		act.written(actionReopen, entry)
	}
	return added, err
}

// onlyKind returns the kind of all the items; "" if they have several.
func onlyKind(items []NewItem) string {
	for i := range items {
		if items[i].Kind != items[0].Kind {
			return ""
		}
	}
	return items[0].Kind
}

// withTrace returns items with the trace context to store: that of the item, or else that of ctx.
func withTrace(ctx context.Context, items []NewItem) []NewItem {
	of := tracing.Of(ctx)
	if of == "" && !slices.ContainsFunc(items, func(n NewItem) bool { return n.Trace != "" }) {
		return items
	}
	items = slices.Clone(items)
	for i := range items {
		n := &items[i]
		n.Trace = cmp.Or(tracing.Clean(n.Trace), of)
	}
	return items
}

func (l *Ledger) announceAdded(items []NewItem, added []Added) {
	var kinds []string
	for i, a := range added {
		if a.State == StateReady && a.Verdict != VerdictKnown && a.Verdict != VerdictDiffers &&
			!slices.Contains(kinds, items[i].Kind) {
			kinds = append(kinds, items[i].Kind)
		}
	}
	l.announce(kinds)
}

func identity(n *NewItem) Identity { return Identity{n.Kind, n.Scope, n.Key} }

func compareIdentity(a, b *NewItem) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Scope, b.Scope), strings.Compare(a.Key, b.Key))
}

// addIn adds valid items within a transaction.
func (l *Ledger) addIn(tx Tx, items []NewItem) ([]Added, error) {
	if err := l.ensureKinds(tx, items); err != nil {
		return nil, err
	}
	added := make([]Added, len(items))
	// All transactions lock in one order, so that two adds of the same keys never deadlock.
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareIdentity(&items[a], &items[b]) })
	for len(order) > 0 { // once, unless the batch names an item twice; its entries are added in the order given
		wave, repeated := make([]int, 0, len(order)), []int(nil)
		for k, i := range order {
			if k > 0 && compareIdentity(&items[order[k-1]], &items[i]) == 0 {
				repeated = append(repeated, i)
			} else {
				wave = append(wave, i)
			}
		}
		if err := addDistinct(tx, items, wave, added); err != nil {
			return nil, err
		}
		order = repeated
	}
	return added, nil
}

// ensureKinds gives every kind of the items a row. It does not change the policy of existing kinds.
func (l *Ledger) ensureKinds(tx Tx, items []NewItem) error {
	var names []string
	for i := range items {
		if k := items[i].Kind; i == 0 || k != items[i-1].Kind { // most are of one kind
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
	recs, works := make([]Record, len(indices)), make([]Work, len(indices))
	for k, i := range indices {
		recs[k].Work = &works[k]
		recs[k].set(&items[i], tx.Now)
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

// set fills an empty record, with an empty row of the backlog, from a new item.
func (r *Record) set(n *NewItem, now func() time.Time) {
	r.Identity, r.Stored, r.Epoch = identity(n), n.stored(), 1
	w := r.Work
	w.State, w.Priority, w.Epoch = StateReady, n.Priority, 1
	if n.Due.IsZero() {
		return
	}
	w.Due = n.Due.UTC().Truncate(time.Microsecond)
	if n.Due.After(now()) {
		w.State = StateWaiting
	}
}

// readd decides what adding a known item changes; see the table in docs/design.md. Epoch counts the openings of an
// item: one begins when the item is added or opened again. A recurring item has many rounds in one opening.
func readd(r *Record, n *NewItem, now time.Time) (Verdict, *Change) {
	state := r.State()
	if state == StateDoubt {
		return VerdictKnown, nil // a person decides
	}
	newer := n.Fingerprint != "" && r.Fingerprint != "" && n.Fingerprint != r.Fingerprint
	if n.Every != "" && (n.Every != r.Every || n.Zone != r.Zone) && state != StateCancelled {
		return VerdictChanged, reschedule(r, n, newer, now)
	}
	if newer { // also of a cancelled item: the version that was there was cancelled
		return VerdictChanged, change(r, n, state, now)
	}
	a := n.Again
	longAgo := !a.DoneBefore.IsZero() && r.Last != nil && r.Last.FinishedAt.Before(a.DoneBefore)
	over := r.roundOver(now)
	failed := over && r.Last.ClosedAs() == RoundFailed
	retry := failed && (longAgo || a.Dead && !bytes.Equal(n.payloadOver(r), r.Payload))
	switch {
	// A new opening: in the same one a later Due would mean that the item waits for its next round, see roundOver.
	case retry && n.Due.After(now):
		return VerdictReopened, &Change{ID: r.ID, Item: itemChange(r, n, r.Epoch+1), Work: reopened(r, n, now)}
	case state == StateDead && a.Dead, retry:
		return VerdictReopened, &Change{ID: r.ID, Item: itemChange(r, n, r.Epoch),
			Work: r.freshFrom(r.Work.Epoch, later(now, n.Due), now)}
	case state == StateCancelled && a.Cancelled, (state == StateDone || over) && longAgo:
		return VerdictReopened, &Change{ID: r.ID, Item: itemChange(r, n, r.Epoch+1), Work: reopened(r, n, now)}
	}
	verdict := VerdictKnown
	if (len(r.Payload) > 0 || r.Work != nil) && !bytes.Equal(n.payloadOver(r), r.Payload) {
		verdict = VerdictDiffers // a finished item without a payload may have been pruned
	}
	if r.Fingerprint == "" && n.Fingerprint != "" { // the item has no version yet
		return verdict, &Change{ID: r.ID, Item: &ItemChange{Fingerprint: n.Fingerprint, Payload: r.Payload, Every: r.Every,
			Zone: r.Zone, Trace: r.Trace, Epoch: r.Epoch}}
	}
	return verdict, nil
}

// change returns the change that opens an item with another fingerprint.
func change(r *Record, n *NewItem, state State, now time.Time) *Change {
	c := &Change{ID: r.ID}
	if r.roundOver(now) {
		state = StateDone // another period is another round as well
	}
	switch state {
	case StateWaiting, StateReady:
		due, epoch := r.Work.Due, r.Epoch
		if r.attempted(now) { // the old version was tried: the new one is other work
			epoch++
			if due.After(now) && !r.waitsPutOff(now) { // for a retry
				due = now
			}
		}
		c.Item = itemChange(r, n, epoch)
		c.Work = r.freshFrom(epoch, later(due, n.Due), now)
	case StateLeased: // the running attempt has its own copy; if it completes, the new version becomes ready
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

// reopened returns the backlog row of the next round of a finished, cancelled or dead item.
func reopened(r *Record, n *NewItem, now time.Time) *Work {
	w := r.freshFrom(r.Epoch+1, later(now, n.Due), now)
	w.Priority = n.Priority
	return w
}

// reschedule gives an item a recurrence, or another one. With a newer fingerprint it begins another opening, too.
func reschedule(r *Record, n *NewItem, newer bool, now time.Time) *Change {
	c := &Change{ID: r.ID, Item: itemChange(r, n, r.Epoch)}
	if newer || r.Work == nil || r.Work.State == StateDead {
		c.Item.Epoch++
	}
	e, err := recurrence.Parse(n.Every, n.Zone)
	if err != nil {
		return c
	}
	// The running attempt goes on. At its end the rules see Reopen and go by the new recurrence.
	if r.Work != nil && r.Work.State == StateLeased {
		w := *r.Work
		w.Reopen = true
		c.Work = &w
		return c
	}
	due := later(now, n.Due)
	if start := e.Start(now); !newer && !r.DonePeriod.Before(start) {
		due = later(due, e.Next(start, now))
	}
	c.Work = r.freshFrom(c.Item.Epoch, due, now)
	c.Work.Priority = n.Priority
	return c
}

// itemChange returns what opening a known item by n changes of it.
func itemChange(r *Record, n *NewItem, epoch int64) *ItemChange {
	c := &ItemChange{Fingerprint: cmp.Or(n.Fingerprint, r.Fingerprint), Payload: n.payloadOver(r), Every: r.Every,
		Zone: r.Zone, Trace: n.Trace, Epoch: epoch}
	if r.pruned() || !bytes.Equal(c.Payload, r.Payload) {
		c.Checksum = r.Identity.Checksum(c.Payload)
	}
	if n.Every != "" {
		c.Every, c.Zone = n.Every, n.Zone
	}
	return c
}

// payloadOver returns the payload that a known item has after n opened it again: that of n, or if n has Given, that of
// the item with the given fields of n.
func (n *NewItem) payloadOver(r *Record) []byte {
	switch {
	case len(n.Payload) == 0 && r.pruned(): // nil: none; the empty payload of r means that it was pruned
		return nil
	case len(n.Payload) == 0 || bytes.Equal(n.Payload, r.Payload):
		return r.Payload
	case n.Given == nil || r.pruned():
		return n.Payload
	}
	return payload.Over(r.Payload, n.Payload, n.Given)
}
