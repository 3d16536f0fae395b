package ledger_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// counting is a store that counts the rows that it reads of the journal.
type counting struct {
	ledger.Store
	rows int
}

func (c *counting) Journal(ctx context.Context, before int64, limit int) ([]ledger.JournalEntry, error) {
	rows, err := c.Store.Journal(ctx, before, limit)
	c.rows += len(rows)
	return rows, err
}

// TestJournalReadsLittle: what is new is found without reading the whole journal.
func TestJournalReadsLittle(t *testing.T) {
	const most = 1000
	ctx := t.Context()
	store := &counting{Store: memory.New(memory.Options{})}
	l := ledger.New(store, ledger.Options{})
	for i := range 3 * most {
		must.Do(t)(l.EditKind(ctx, "ann", "k", func(k *ledger.Kind, _ bool) { k.Paused = i%2 == 1 }))
	}
	_, middle, err := l.JournalPart(ctx, ledger.JournalQuery{Limit: most}, 0)
	must.OK(t, err)
	for name, read := range map[string]func() (int, error){
		"an entry in the middle": func() (int, error) {
			middle.Limit = 1
			found, _, err := l.JournalPart(ctx, middle, 0)
			return len(found), err
		},
		"none since a time": func() (int, error) {
			found, err := l.Journal(ctx, ledger.JournalQuery{Since: time.Now().Add(2 * time.Hour), Limit: most})
			return 1 + len(found), err
		},
		"an entry": func() (int, error) {
			found, err := l.Journal(ctx, ledger.JournalQuery{Limit: 1})
			return len(found), err
		},
		"a pause": func() (int, error) {
			found, err := l.Pauses(ctx, ledger.Kind{Name: "k", Paused: true})
			return len(found), err
		},
	} {
		store.rows = 0
		if n, err := read(); n != 1 || err != nil || store.rows > most {
			t.Errorf("%s: found %d, %v, after reading %d rows; want at most %d", name, n, err, store.rows, most)
		}
	}
}

// TestCutIDs: a list of ids that was cut shows it, whatever small part of the act comes before it.
func TestCutIDs(t *testing.T) {
	ctx := t.Context()
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	for i := range 2000 {
		must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}))
	}
	act := ledger.OneAct(ctx, "")
	for _, from := range []int64{1, 1000} {
		var ids []int64
		for id := from; id < from*2; id += 2 {
			ids = append(ids, id)
		}
		must.Do(t)(l.Cancel(act, "ann", ledger.IDs(ids...)))
	}
	found, err := l.Journal(ctx, ledger.JournalQuery{Limit: 1})
	must.OK(t, err)
	if ids := found[0].IDs; !strings.HasPrefix(ids, "1 1000 ") || !strings.HasSuffix(ids, " …") {
		t.Errorf("ids of %d items: %s", found[0].Changed, ids)
	}
}

// TestJournalUnfinished: acts whose first part is before Since are in the list, in whatever parts it is read.
func TestJournalUnfinished(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	l := ledger.New(memory.New(memory.Options{Now: func() time.Time { return now }}), ledger.Options{})
	began := now.Add(time.Hour)
	acts := []context.Context{ledger.OneAct(ctx, "first"), ledger.OneAct(ctx, "second")}
	for part := range 2 {
		for i, act := range acts {
			added, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: fmt.Sprint(part, i)})
			must.OK(t, err)
			must.Do(t)(l.Cancel(act, "ann", ledger.IDs(added[0].ID)))
		}
		if now = now.Add(2 * time.Hour); part == 0 {
			must.Do(t)(l.EditKind(ctx, "ann", "k", func(k *ledger.Kind, _ bool) { k.MaxFailures = 7 }))
		}
	}
	for limit := 1; limit <= 3; limit++ {
		var got []string
		for q := (ledger.JournalQuery{Since: began, Limit: limit}); ; {
			found, next, err := l.JournalPart(ctx, q, 0)
			must.OK(t, err)
			for _, e := range found {
				got = append(got, fmt.Sprint(e.Action, " ", e.Changed, " ", e.Detail))
			}
			if q = next; q.Before == 0 {
				break
			}
		}
		if len(got) != 3 || got[1] != "cancel 1 second" || got[2] != "cancel 1 first" {
			t.Errorf("in parts of %d: %q", limit, got)
		}
	}
}

// TestPlaceOptions: a slice of options stays as it is.
func TestPlaceOptions(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	how := make([]ledger.ActOption, 0, 1)
	must.Do(t)(l.Place(t.Context(), "ann", ledger.Filter{}, 1, how...))
	if how[:1][0] != nil {
		t.Error("Place wrote into the slice of the caller")
	}
}
