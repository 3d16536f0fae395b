package ledger

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// JournalEntry is one act of an operator, or of a program that wrote a policy.
type JournalEntry struct {
	ID      int64     // rises with each entry; set by the store
	At      time.Time // when it was written; set by the store
	Actor   string    // who: "operator:ann", "host/4711"
	Action  string    // "retry", "set-kind" …
	Subject string    // which items, or the name of a kind
	Detail  string    // what changed: of an act on items their ids, as "3 7-12"
	Changed int64
}

// JournalQuery chooses entries of the journal. The zero one chooses all.
type JournalQuery struct {
	Before int64     // only entries with a smaller id; 0 begins with the newest
	Since  time.Time // only entries written at or after it
	Actor  string    // only acts of this actor
	Action string    // only this action
	About  string    // only entries whose subject has this text
	Item   int64     // only acts on the item with this id
	Limit  int       // 1 … MaxBatch
}

// Journal returns entries of the journal, newest first.
func (l *Ledger) Journal(ctx context.Context, q JournalQuery) ([]JournalEntry, error) {
	if q.Limit < 1 || q.Limit > MaxBatch {
		return nil, &InvalidError{Field: "limit", Reason: number.Sprintf("%d, must be 1 … %d", q.Limit, MaxBatch)}
	}
	var found []JournalEntry
	for before := q.Before; ; {
		entries, err := l.store.Journal(ctx, before, q.Since, MaxBatch)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if q.matches(e) {
				if found = append(found, e); len(found) == q.Limit {
					return found, nil
				}
			}
		}
		if len(entries) < MaxBatch {
			return found, nil
		}
		before = entries[len(entries)-1].ID
	}
}

func (q JournalQuery) matches(e JournalEntry) bool {
	return (q.Actor == "" || e.Actor == q.Actor) && (q.Action == "" || e.Action == q.Action) &&
		strings.Contains(e.Subject, q.About) && (q.Item == 0 || e.concerns(q.Item))
}

// concerns says whether an act changed the item.
func (e JournalEntry) concerns(id int64) bool {
	if e.Subject == itemSubject(id) {
		return true
	}
	if !strings.HasPrefix(e.Subject, "items ") {
		return false
	}
	return slices.ContainsFunc(strings.Fields(e.Detail), func(part string) bool {
		from, to, span := strings.Cut(part, "-")
		if !span {
			to = from
		}
		first, err := strconv.ParseInt(from, 10, 64)
		last, errLast := strconv.ParseInt(to, 10, 64)
		return err == nil && errLast == nil && first <= id && id <= last
	})
}

// itemSubject is the subject of an act on one item.
func itemSubject(id int64) string { return fmt.Sprintf("item %d", id) }

// idRanges lists ids: "3 7-12".
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
