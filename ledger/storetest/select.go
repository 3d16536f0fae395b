package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// Selects tests ledger.AddSelect on a store in which the test can have a table of its own: exec
// runs statements there, with parameters written ?, of which the store's queries see the result.
func Selects(t *testing.T, open Open, exec func(t testing.TB, s ledger.Store, statement string, args ...any)) {
	for _, c := range []struct {
		name string
		fn   func(h *harness, exec func(statement string, args ...any))
	}{
		{"LikeAdd", selectLikeAdd}, {"Table", selectTable}, {"Samples", selectSamples}, {"Refusals", selectRefusals}, {"Due", selectDue},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, open)
			c.fn(h, func(statement string, args ...any) { exec(t, h.store, statement, args...) })
			h.verify()
		})
	}
}

func (h *harness) selected(s ledger.Selection) ledger.Selected {
	h.t.Helper()
	got, err := h.l.AddSelect(h.ctx, s)
	h.ok(err)
	return got
}

// selectTable is what adding a known item does, by a query.
func selectTable(h *harness, exec func(string, ...any)) {
	exec(`CREATE TABLE people (n integer, name text, t text)`)
	for _, state := range ledger.States {
		id := h.prepared(state) // key x, payload p1
		exec(`DELETE FROM people`)
		for i, row := range [][2]any{{"x", "p2"}, {" y ", "a"}, {nil, "b"}, {"y", "c"}, {"  ", "d"}, {strings.Repeat("k", ledger.MaxKey+1), "e"}, {"z", nil}, {"z", nil}} {
			exec(`INSERT INTO people VALUES (?, ?, ?)`, i, row[0], row[1])
		}
		sel := ledger.Selection{Kind: "k", Query: `SELECT name, t FROM people ORDER BY n`, Key: "name", Fields: []ledger.Field{{Name: "t", Column: "t"}}, Source: "people"}
		before := h.item(id)
		want := ledger.Selected{Rows: 8, Added: 2, Known: 1, Differs: 2, BadRows: 3, Bad: []ledger.BadRow{
			{Row: 3, Reason: "the key is NULL"}, {Row: 5, Reason: "blank key"}, {Row: 6, Reason: "key: 2,049 bytes, at most 2,048"}}}
		if state == ledger.StateDoubt { // where a person decides, whatever the payload
			want.Known, want.Differs = 2, 1
		}
		sel.Try = true
		equal(h.t, "tried, "+string(state), h.selected(sel), want)
		n, err := h.l.Count(h.ctx, ledger.Filter{})
		h.ok(err)
		equal(h.t, "items after a try", n, 1)
		sel.Try = false
		equal(h.t, string(state), h.selected(sel), want)
		equal(h.t, "the known item", h.item(id), before)
		for key, payload := range map[string]string{"y": `{"t":"a"}`, "z": ""} {
			it, err := h.l.Find(h.ctx, "k", "", key)
			h.ok(err)
			if string(it.Payload) != payload || it.State != ledger.StateReady || it.Source != "people" || it.Slot != ledger.Slot(key) {
				h.t.Errorf("%s: %+v", key, it)
			}
			h.remove(it.ID)
		}
		h.remove(id)
	}
}

// selectLikeAdd: whatever is in a table, a query adds what adding its rows one by one adds, byte for byte.
func selectLikeAdd(h *harness, exec func(string, ...any)) {
	exec(`CREATE TABLE people (n integer, k text, a text, b bigint, c text)`)
	odd := rapid.StringOfN(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("<>&\"\\\u2028\u2029\b\f\n\t\x01\x1f\x7f é\u00a0'?${"))), 0, 20, 200).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) })
	round := 0
	rapid.Check(h.t, func(t *rapid.T) {
		round++
		exec(`DELETE FROM people`)
		type line struct {
			k, a, c *string
			b       *int64
		}
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) line {
			return line{rapid.Ptr(odd, true).Draw(t, "k"), rapid.Ptr(odd, true).Draw(t, "a"), rapid.Ptr(odd, true).Draw(t, "c"), rapid.Ptr(rapid.Int64(), rapid.IntRange(0, 3).Draw(t, "null") == 0).Draw(t, "b")}
		}), 0, 12).Draw(t, "rows")
		sel := ledger.Selection{Kind: "k", Scope: fmt.Sprintf("sql%d", round), Query: "SELECT * FROM people ORDER BY n -- all", Key: "k", Source: "s", Fields: []ledger.Field{
			{Name: "a", Column: "a"}, {Name: "b", Column: "b"}, {Name: "z<", Column: "b", Text: true}, {Name: "c", Column: "c", Text: true}, {Name: "A", Value: ledger.JSON(odd.Draw(t, "constant"))}, {Name: "to", Column: "k", Text: true, Trim: true},
			{Name: "must", Column: "b", Required: true}, {Name: "short", Column: "a", Text: true, MaxChars: 15}}}
		var items []ledger.NewItem
		want := ledger.Selected{Rows: int64(len(rows))}
		for i, r := range rows {
			value := func(s *string) any {
				if s == nil {
					return nil
				}
				return *s
			}
			cells := map[string]any{"k": value(r.k), "a": value(r.a), "c": value(r.c), "b": nil}
			if r.b != nil {
				cells["b"] = *r.b
			}
			exec(`INSERT INTO people VALUES (?, ?, ?, ?, ?)`, i, cells["k"], cells["a"], cells["b"], cells["c"])
			payload, err := sel.Payload(func(c string) any { return cells[c] })
			bad := ledger.BadRow{}
			if r.k == nil || strings.TrimSpace(*r.k) == "" {
				bad = ledger.NewBadRow(int64(i+1), r.k == nil, 0, 0)
			} else if err != nil {
				bad = ledger.BadRow{Row: int64(i + 1), Reason: err.Error()}
			}
			if bad.Row > 0 {
				want.BadRows++
				want.Bad = append(want.Bad, bad)
				continue
			}
			items = append(items, ledger.NewItem{Kind: "k", Scope: fmt.Sprintf("rows%d", round), Key: strings.TrimSpace(*r.k), Payload: payload, Source: "s"})
		}
		for _, n := range items {
			switch h.add(n)[0].Verdict {
			case ledger.VerdictAdded:
				want.Added++
			case ledger.VerdictDiffers:
				want.Differs++
			default:
				want.Known++
			}
		}
		if d := cmp.Diff(want, h.selected(sel)); d != "" {
			t.Fatalf("answers (-want +got):\n%s", d)
		}
		if d := cmp.Diff(h.payloads(fmt.Sprintf("rows%d", round)), h.payloads(sel.Scope)); d != "" {
			t.Fatalf("items (-by rows +by query):\n%s", d)
		}
	})
}

// payloads are those of a scope, by key, with the slot.
func (h *harness) payloads(scope string) map[string]string {
	all := map[string]string{}
	for it, err := range h.l.List(h.ctx, ledger.Filter{Scopes: []string{scope}}, 0) {
		h.ok(err)
		all[it.Key] = fmt.Sprintf("%d %s", it.Slot, it.Payload)
	}
	return all
}

// selectSamples: a sample is the first in the order of Rank of those that are not known.
func selectSamples(h *harness, exec func(string, ...any)) {
	exec(`CREATE TABLE people (n integer)`)
	for i := range 100 {
		exec(`INSERT INTO people VALUES (?)`, i%90)
	}
	h.add(ledger.NewItem{Kind: "k", Scope: "s", Key: "7"}, ledger.NewItem{Kind: "k", Key: "8"})
	sel := ledger.Selection{Kind: "k", Scope: "s", Query: `SELECT n FROM people`, Key: "n", Sample: 30, Seed: "x"}
	equal(h.t, "30 of 90", h.selected(sel), ledger.Selected{Rows: 100, Added: 30, Known: 2})
	chosen := h.payloads("s")
	delete(chosen, "7")
	var worst, best [32]byte
	for i := range 90 {
		key := fmt.Sprint(i)
		rank := ledger.Rank("x", key)
		if _, in := chosen[key]; in && string(rank[:]) > string(worst[:]) {
			worst = rank
		} else if !in && key != "7" && (best == [32]byte{} || string(rank[:]) < string(best[:])) {
			best = rank
		}
	}
	if string(worst[:]) >= string(best[:]) {
		h.t.Errorf("an item was chosen with rank %x, another left out with %x", worst, best)
	}
	// With a source it is that of the scope: repeated it is completed.
	of := ledger.Selection{Kind: "k", Scope: "one", Query: `SELECT n FROM people`, Key: "n", Sample: 30, Seed: "x", Source: "list"}
	var wg sync.WaitGroup
	added := make([]int64, 3)
	for i := range added {
		wg.Go(func() {
			got, err := h.l.AddSelect(h.ctx, of)
			h.ok(err)
			added[i] = got.Added
		})
	}
	wg.Wait()
	equal(h.t, "30 drawn by three at once", added[0]+added[1]+added[2], 30)
	of.Sample = 40
	equal(h.t, "10 more", h.selected(of).Added, 10)
	sel.Sample, sel.Try = 1000, true
	equal(h.t, "the rest, tried", h.selected(sel), ledger.Selected{Rows: 100, Added: 59, Known: 36})
	sel.Try = false
	equal(h.t, "the rest", h.selected(sel), ledger.Selected{Rows: 100, Added: 59, Known: 36})
	equal(h.t, "nothing more", h.selected(sel), ledger.Selected{Rows: 100, Known: 100})
}

// selectRefusals: what is no query is told, and nothing is done.
func selectRefusals(h *harness, exec func(string, ...any)) {
	exec(`CREATE TABLE people (n integer)`)
	exec(`INSERT INTO people VALUES (1)`)
	for _, q := range []string{`SELECT m FROM people`, `SELEC n`, `SELECT n FROM people WHERE`, `SELECT 1 AS m`, `DELETE FROM people`, `SELECT n FROM people; SELECT 2 AS n`} {
		_, err := h.l.AddSelect(h.ctx, ledger.Selection{Kind: "k", Query: q, Key: "n"})
		bad := (*ledger.QueryError)(nil)
		if !errors.As(err, &bad) && !errors.Is(err, errors.ErrUnsupported) {
			h.t.Errorf("%s: %v", q, err)
		}
	}
	_, err := h.l.AddSelect(h.ctx, ledger.Selection{Kind: "K", Query: `SELECT n FROM people`, Key: "n"})
	h.is(err, ledger.ErrInvalid)
	n, err := h.l.Count(h.ctx, ledger.Filter{})
	h.ok(err)
	equal(h.t, "items", n, 0)
	equal(h.t, "the table is untouched", h.selected(ledger.Selection{Kind: "k", Query: `SELECT n FROM people`, Key: "n"}), ledger.Selected{Rows: 1, Added: 1})
}

func selectDue(h *harness, exec func(string, ...any)) {
	exec(`CREATE TABLE people (n integer)`)
	exec(`INSERT INTO people VALUES (1)`)
	h.selected(ledger.Selection{Kind: "k", Query: `SELECT n FROM people`, Key: "n", Due: start.Add(time.Hour), Priority: -1})
	it, err := h.l.Find(h.ctx, "k", "", "1")
	h.ok(err)
	if it.State != ledger.StateWaiting || it.Priority != -1 || !it.Due.Equal(start.Add(time.Hour)) {
		h.t.Errorf("%+v", it)
	}
	h.pass(time.Hour)
	h.take("k")
}
