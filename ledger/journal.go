package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// JournalEntry is one act of an operator, or of a program that wrote a policy. An act on many items is one
// entry, however many transactions it took.
type JournalEntry struct {
	ID      int64     // rises with the beginning of each act; set by the store
	At      time.Time // when it was written; of an act on many items, when its first part was; set by the store
	Actor   string    // the operator or program: "operator:ann", "host/4711"
	Action  string    // "retry", "set-kind" …
	Subject string    // "items 3 … 900", "kind k", "ledger", or the name of a kind, a lock or a file
	Detail  string    // what changed; of an act on items what was asked for, see OneAct
	Changed int64     // how many items or kinds
	IDs     string    // of the items that it changed, as "3 7-12"; the first ones, if they are many
	Keys    []string  // of items that it removed, the first ones
}

// JournalQuery chooses entries of the journal. The zero one chooses all.
type JournalQuery struct {
	Before int64     // only entries with a smaller id; 0 begins with the newest
	Since  time.Time // only entries written at or after it; of an act that began earlier, only its later parts
	Until  time.Time `json:",omitzero"` // only entries written before it
	Actor  string    // only acts of this actor
	Action string    // only this action
	Item   int64     // only acts on the item with this id
	Limit  int       // 1 … bounds.MaxBatch
	// From is the id of a row of the store, 0 for none: only rows with a smaller id are read. JournalPart returns it.
	From int64 `json:",omitzero"`
}

// journalPage is how many rows of the journal are read at a time. The ids in one row may be KBs.
const journalPage = 500

// Journal returns entries of the journal, newest first.
func (l *Ledger) Journal(ctx context.Context, q JournalQuery) ([]JournalEntry, error) {
	found, _, err := l.JournalPart(ctx, q, 0)
	return found[:max(min(len(found), q.Limit), 0)], err
}

// JournalPart is Journal for a list that is read in parts. It stops about within after it began to read rows below
// q.Before; 0 means no limit. next is q with Before and From of the next part; if there is none, next.Before is 0. The
// last part has more than q.Limit entries if several acts began before q.Since.
func (l *Ledger) JournalPart(ctx context.Context, q JournalQuery, within time.Duration) (found []JournalEntry,
	next JournalQuery, err error) {
	if q.Limit < 1 || q.Limit > bounds.MaxBatch {
		return nil, next, &InvalidError{Field: "limit", Reason: number.Sprintf("%d, must be 1 … %d", q.Limit,
			bounds.MaxBatch)}
	}
	r := journalReader{JournalQuery: q, parts: map[string]*foundAct{}}
	var began time.Time // when the first row below q.Before was read: the rows above it are read in any case
	for before := q.From; ; {
		rows, err := l.store.Journal(ctx, before, journalPage)
		if err != nil {
			return nil, next, err
		}
		for _, row := range rows {
			before = row.ID
			if row.At.Before(q.Since) {
				continue
			}
			if r.read(row); len(r.found) == q.Limit {
				return r.found, r.below(before), nil
			}
		}
		if n := len(rows); n < journalPage || rows[n-1].At.Before(q.Since.Add(-maxLate)) {
			r.takeUnfinished()
			return r.found, next, nil
		}
		switch below := q.Before == 0 || before < q.Before; {
		case below && began.IsZero():
			began = time.Now()
		case below && within > 0 && time.Since(began) > within:
			return r.found, r.below(before), nil
		}
	}
}

// below returns the query for what is below a row that was read. From is above the row if parts of an act are on both
// sides of it.
func (r *journalReader) below(row int64) JournalQuery {
	q := r.JournalQuery
	q.Before, q.From = row, row
	for _, a := range r.parts {
		q.From = max(q.From, a.newest+1)
	}
	return q
}

// OneAct returns a context for calls that change many items. All such calls with it are one act of the journal, one for
// each action. asked is what the person has asked for: the words of a command, or a filter as it was typed. The calls
// must follow each other.
func OneAct(ctx context.Context, asked string) context.Context {
	return AddingAct(ctx, "", asked)
}

// AddingAct is OneAct for Add: Add writes the items that it opens again as an act "reopen" of actor. Without AddingAct,
// Add writes nothing into the journal.
func AddingAct(ctx context.Context, actor, asked string) context.Context {
	return (&BulkAct{ID: uuid.NewString(), Actor: actor, Asked: head(asked, maxAsked),
		Parts: map[string]int{}}).With(ctx)
}

// BulkActOf returns the act that OneAct or AddingAct put into the context, else a new one. A program that acts on a
// ledger for another program sends the act along, so that the calls of one program are one act there.
func BulkActOf(ctx context.Context) *BulkAct {
	if b, ok := ctx.Value(actKey{}).(*BulkAct); ok {
		return b
	}
	return BulkActOf(OneAct(ctx, ""))
}

// With returns a context whose calls belong to the act.
func (b *BulkAct) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, actKey{}, b)
}

// asking returns the act with a text for Asked, if it has none. It shares Parts with b.
func (b *BulkAct) asking(text string) *BulkAct {
	c := *b
	c.Asked = cmp.Or(c.Asked, text)
	return &c
}

type actKey struct{}

// actionReopen is the action in the journal for items that were opened again.
const actionReopen = "reopen"

// Bounds of the journal entry of one act, in bytes.
const (
	maxAsked = 1 << 10
	maxIDs   = 2 << 10 // that are returned; all are stored
	maxKeys  = 8 << 10
)

// BulkAct is an act on many items that has not ended: one entry of the journal.
type BulkAct struct {
	ID, Asked string         // Asked: see OneAct
	Actor     string         // of the items that Add opens again; "": Add writes nothing
	Parts     map[string]int // the number of parts that were written, by action
	Keys      int            // bytes of keys that were written
}

// actPart is the detail, as JSON, of one row of the journal. Each transaction of an act on items writes one row.
type actPart struct {
	Act   string   `json:"act"`
	Part  int      `json:"part"` // from 1 on
	Asked string   `json:"asked,omitempty"`
	IDs   string   `json:"ids"`
	Keys  []string `json:"keys,omitempty"` // of items that are removed
}

// entry returns the row for the next part of an act.
func (b *BulkAct) entry(actor, action string, recs []Record, changes []Change) JournalEntry {
	p := actPart{Act: b.ID, Part: b.Parts[action] + 1, Asked: withCauses(b.Asked, recs)}
	ids, removed, bytes := make([]int64, len(changes)), map[int64]bool{}, b.Keys
	for i, c := range changes {
		ids[i] = c.ID
		if c.Forget {
			removed[c.ID] = true
		}
	}
	for i := range recs {
		if key := recs[i].Key; removed[recs[i].ID] && bytes+len(key) <= maxKeys {
			p.Keys, bytes = append(p.Keys, key), bytes+len(key)
		}
	}
	p.IDs = idRanges(ids)
	return JournalEntry{Actor: actor, Action: action, Subject: itemsSubject(p.IDs, p.IDs), Detail: string(JSON(p)),
		Changed: int64(len(ids))}
}

// withCauses adds the codes to the causes that a person asked for: "cause:3f2a9c01b7de code:http_503". The id of a
// cause alone means nothing to people, and the errors may be pruned before the journal is.
func withCauses(asked string, recs []Record) string {
	if !strings.Contains(asked, "cause:") {
		return head(asked, maxAsked)
	}
	for _, r := range recs {
		if r.Last == nil || r.Last.Code == "" || r.Last.Cause == "" {
			continue
		}
		term := "cause:" + r.Last.Cause
		if named := term + " code:" + r.Last.Code; !strings.Contains(asked, named) {
			asked = strings.ReplaceAll(asked, term, named)
		}
	}
	return head(asked, maxAsked)
}

// reopenedBy returns the row for the items that Add has opened again; ok is false if there is nothing to write.
func (b *BulkAct) reopenedBy(added []Added) (e JournalEntry, ok bool) {
	if b == nil || b.Actor == "" {
		return e, false
	}
	var changes []Change
	for _, a := range added {
		if a.Verdict == VerdictReopened {
			changes = append(changes, Change{ID: a.ID})
		}
	}
	if len(changes) == 0 {
		return e, false
	}
	return b.entry(b.Actor, actionReopen, nil, changes), true
}

// written records that a part of an act is in the ledger.
func (b *BulkAct) written(action string, e JournalEntry) {
	b.Parts[action]++
	for _, key := range e.part().Keys {
		b.Keys += len(key)
	}
}

// part returns the part of an act on items that a row keeps; the zero part for any other row.
func (e JournalEntry) part() (p actPart) {
	if strings.HasPrefix(e.Detail, `{"act":`) {
		_ = json.Unmarshal([]byte(e.Detail), &p) // the zero part if Detail is another text
	}
	return p
}

// journalReader makes entries from rows. It reads the newest row first.
type journalReader struct {
	JournalQuery
	found []JournalEntry
	parts map[string]*foundAct // acts whose first part was not read yet
}

type foundAct struct {
	JournalEntry
	last     string // ids of its newest part
	newest   int64  // the row of that part
	concerns bool   // it changed JournalQuery.Item
	cut      bool   // its first part is not among the rows
}

// read takes an act if row is its first part, and else keeps the part until that is read.
func (r *journalReader) read(row JournalEntry) {
	p := row.part()
	if p.Part == 0 {
		r.take(&foundAct{JournalEntry: row, concerns: row.Subject == itemSubject(r.Item)})
		return
	}
	name := p.Act + " " + row.Action
	a := r.parts[name]
	if a == nil {
		a = &foundAct{JournalEntry: row, last: p.IDs, newest: row.ID}
		a.Changed = 0
		r.parts[name] = a
	}
	a.ID, a.At, a.Detail, a.Changed = row.ID, row.At, p.Asked, a.Changed+row.Changed
	a.Subject, a.Keys = itemsSubject(p.IDs, a.last), append(p.Keys, a.Keys...)
	a.IDs = shortIDs(strings.TrimSpace(p.IDs + " " + a.IDs))
	if a.concerns = a.concerns || containsID(p.IDs, r.Item); p.Part == 1 {
		delete(r.parts, name)
		r.take(a)
	}
}

// takeUnfinished takes the acts of which the first part is older than the rows that were read, also beyond Limit: no
// later part of the list has them.
func (r *journalReader) takeUnfinished() {
	unfinished := slices.SortedFunc(maps.Values(r.parts), func(a, b *foundAct) int { return cmp.Compare(b.ID, a.ID) })
	for _, a := range unfinished {
		a.cut = true
		r.take(a)
	}
}

// take adds an act to the found ones if it meets the conditions of the query.
func (r *journalReader) take(a *foundAct) {
	if (r.Before == 0 || a.ID < r.Before || a.cut && r.From > 0) && (r.Actor == "" || a.Actor == r.Actor) &&
		(r.Action == "" || a.Action == r.Action) && (r.Until.IsZero() || a.At.Before(r.Until)) &&
		(r.Item == 0 || a.concerns) {
		r.found = append(r.found, a.JournalEntry)
	}
}

// containsID reports whether an id is in a list in the form of idRanges.
func containsID(ids string, id int64) bool {
	return slices.ContainsFunc(strings.Fields(ids), func(part string) bool {
		from, to, span := strings.Cut(part, "-")
		if !span {
			to = from
		}
		first, err := strconv.ParseInt(from, 10, 64)
		last, errLast := strconv.ParseInt(to, 10, 64)
		return err == nil && errLast == nil && first <= id && id <= last
	})
}

// shortIDs returns the first ids of a list.
func shortIDs(ids string) string {
	whole := strings.TrimSuffix(ids, " …")
	if len(whole) <= maxIDs {
		return ids
	}
	return whole[:strings.LastIndexByte(whole[:maxIDs], ' ')] + " …"
}

// itemsSubject returns the subject of an act on items, from the ids of its first and of its newest part.
func itemsSubject(first, last string) string {
	from := first[:strings.IndexAny(first+" ", " -")]
	if to := last[strings.LastIndexAny(last, " -")+1:]; to != from {
		return "items " + from + " … " + to
	}
	return "item " + from
}

// itemSubject returns the subject of an act on one item.
func itemSubject(id int64) string { return fmt.Sprintf("item %d", id) }

// idRanges writes ids as text: "3 7-12".
func idRanges(ids []int64) string {
	ids = slices.Sorted(slices.Values(ids))
	var parts []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		part := strconv.FormatInt(ids[i], 10)
		if j > i {
			part += "-" + strconv.FormatInt(ids[j], 10)
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, " ")
}
