package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/ledger/order"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// all collects what is yielded.
func all(items iter.Seq2[ledger.Item, error]) (list []ledger.Item, err error) {
	for it, err := range items {
		if err != nil {
			return list, err
		}
		list = append(list, it)
	}
	return list, nil
}

// both joins two results into one answer.
func both[A, B any](a A, b B, err error) ([]any, error) { return []any{a, b}, err }

// any1 converts an answer to the type any.
func any1[A any](a A, err error) (any, error) { return a, err }

// looks are calls that only look, on a ledger as fill makes it.
var looks = map[string]func(context.Context, ledgers.Any) (any, error){
	"Get":          func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Get(c, 1)) },
	"Get raw":      func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Get(c, 7)) },
	"Get none":     func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Get(c, 99)) },
	"Find":         func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Find(c, "mail", "s", "daily")) },
	"Find none":    func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Find(c, "mail", "s", "weekly")) },
	"Find nothing": func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Find(c, "mail", "s", "")) },
	"List": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(all(l.List(c, ledger.Filter{}, 2)))
	},
	"List of none": func(c context.Context, l ledgers.Any) (any, error) { return any1(all(l.List(c, ledger.IDs(), 0))) },
	"Walk by end": func(c context.Context, l ledgers.Any) (any, error) {
		w := &ledger.Walk{Order: order.Ended, Desc: true, Output: true}
		list, err := all(l.Walk(c, w))
		return both(list, w.Reached, err)
	},
	"Walk by key": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(all(l.Walk(c, &ledger.Walk{Order: order.Key, Top: 3})))
	},
	"Walk wrongly": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(all(l.Walk(c, &ledger.Walk{Order: "size"})))
	},
	"Count": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Count(c, ledger.Filter{KeyHas: "o"}))
	},
	"CountUpTo": func(c context.Context, l ledgers.Any) (any, error) {
		return both(l.CountUpTo(c, ledger.Filter{}, 3, time.Second))
	},
	"Attempts": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.AttemptsBefore(c, 2, 0, 10))
	},
	"Attempts, several calls": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.AttemptsBefore(c, 10, 48, 2*calls.MostAttempts+2))
	},
	"Attempts none":    func(c context.Context, l ledgers.Any) (any, error) { return any1(l.AttemptsBefore(c, 99, 0, 1)) },
	"Attempts wrongly": func(c context.Context, l ledgers.Any) (any, error) { return any1(l.AttemptsBefore(c, 10, 0, 0)) },
	"LastOutput":       func(c context.Context, l ledgers.Any) (any, error) { return any1(l.LastOutput(c, 1)) },
	"Why":              func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Why(c, 8)) },
	"Why dead":         func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Why(c, 2)) },
	"Ended": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Ended(c, ledger.EndedQuery{Failed: true, Limit: 2000}))
	},
	"Recent": func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Recent(c, ledger.Filter{}, 2)) },
	"Journal": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Journal(c, ledger.JournalQuery{Limit: 9}))
	},
	"JournalPart": func(c context.Context, l ledgers.Any) (any, error) {
		return both(l.JournalPart(c, ledger.JournalQuery{Limit: 1, Actor: "test"}, time.Second))
	},
	"Journal wrongly": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Journal(c, ledger.JournalQuery{Limit: -1}))
	},
	"Groups": func(c context.Context, l ledgers.Any) (any, error) {
		return both(l.Groups(c, ledger.Filter{}, "of", 0))
	},
	"AttemptGroups": func(c context.Context, l ledgers.Any) (any, error) {
		return both(l.AttemptGroups(c, ledger.Filter{}, []string{"hour", "code"}, 0))
	},
	"Standing": func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Standing(c, "page")) },
	"StandingIn": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.StandingIn(c, "page", scheduler.Shard{Index: 1, Count: 2}))
	},
	"Stats": func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Stats(c)) },
	"Counts": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Counts(c, time.Now().Add(-time.Hour)))
	},
	"Agents":     func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Agents(c)) },
	"Heartbeats": func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Heartbeats(c)) },
	"LeasedBy":   func(c context.Context, l ledgers.Any) (any, error) { return any1(l.LeasedBy(c)) },
	"Holders": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Holders(c, ledger.Filter{}, func(it ledger.Item) bool { return it.ID == 4 }))
	},
	"Kinds":     func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Kinds(c)) },
	"Kind":      func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Kind(c, "mail")) },
	"Kind none": func(c context.Context, l ledgers.Any) (any, error) { return any1(l.Kind(c, "none")) },
	"Pauses": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Pauses(c, ledger.Kind{Name: "mail", Paused: true}))
	},
	"Known": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Known(c, ledger.Identity{Kind: "page", Key: "one"}, ledger.Identity{Kind: "page", Key: "none"}))
	},
	"Try": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Try(c, ledger.NewItem{Kind: "page", Key: "one", Fingerprint: "2"},
			ledger.NewItem{Kind: "page", Key: "n"}))
	},
	"Try wrongly": func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Try(c, ledger.NewItem{Kind: "page", Key: strings.Repeat("k", 3000)}))
	},
}

// equal compares answers. nil equals an empty list. Times may differ by two seconds, because the clock goes on.
var equal = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(2 * time.Second),
	cmpopts.IgnoreFields(ledger.Attempt{}, "LockID")} // it is the secret of a token

// TestLooks: each call that looks answers over HTTP as it does over the database, mistakes included.
func TestLooks(t *testing.T) {
	r := newRig(t, everything)
	r.fill()
	r.often(50) // item 10
	part, err := look(t.Context(), r.http, calls.Attempts, calls.AttemptsIn{ID: 10, Limit: 50})
	if len(part) != calls.MostAttempts || err != nil {
		t.Errorf("one answer has %d attempts, %v", len(part), err)
	}
	for name, look := range looks {
		want, wantErr := look(t.Context(), r.l)
		got, err := look(t.Context(), r.http)
		if diff := cmp.Diff(want, got, equal); diff != "" && wantErr == nil {
			t.Errorf("%s differs: %s", name, diff)
		}
		if (err == nil) != (wantErr == nil) || err != nil &&
			failure.Explain(err).Code != failure.Explain(wantErr).Code {
			t.Errorf("%s: error %v, over the database %v", name, err, wantErr)
		}
		for _, kind := range []error{ledger.ErrNotFound, ledger.ErrInvalid} {
			if errors.Is(err, kind) != errors.Is(wantErr, kind) {
				t.Errorf("%s: error %v, over the database %v", name, err, wantErr)
			}
		}
	}
}

// TestLargeWalk: a list in an order without an index is the one of the database, and is not cut.
func TestLargeWalk(t *testing.T) {
	r := newRig(t, everything)
	items := make([]ledger.NewItem, 800)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "page", Key: fmt.Sprint(i), Payload: make([]byte, 6<<10)}
	}
	must.Do(t)(r.l.Add(t.Context(), items...))
	want, err := all(r.l.Walk(t.Context(), &ledger.Walk{Order: order.Key, Top: len(items)}))
	r.ok(err)
	w := &ledger.Walk{Order: order.Key, Top: len(items)}
	got, err := all(r.http.Walk(t.Context(), w))
	r.ok(err)
	if w.Cut || !slices.EqualFunc(want, got, func(a, b ledger.Item) bool {
		return a.ID == b.ID && bytes.Equal(a.Payload, b.Payload)
	}) {
		t.Errorf("%d items of %d, cut: %t", len(got), len(want), w.Cut)
	}
}

// TestRepeated: a look is repeated while the ledger is unavailable, but not if it took too long.
func TestRepeated(t *testing.T) {
	r := newRig(t, everything)
	for _, c := range []struct {
		code string
		want int
	}{{"too_slow", 1}, {"unavailable", tries}, {"too_many", tries}} {
		asked := 0
		r.http.client.Transport = tripper(func(*http.Request) (*http.Response, error) {
			asked++
			return problem(http.StatusServiceUnavailable, c.code), nil
		})
		if _, err := r.http.Count(t.Context(), ledger.Filter{}); !errors.Is(err, ledger.ErrUnavailable) || asked != c.want {
			t.Errorf("%s: asked %d times, %v", c.code, asked, err)
		}
	}
}

// TestHints: the error of a call without an answer tells whether the call may have taken effect, and the next step.
func TestHints(t *testing.T) {
	calls := map[string]struct {
		do   func(l *Ledger) error
		hint string
	}{
		"retry": {func(l *Ledger) error {
			_, err := l.Retry(t.Context(), "operator:ann", ledger.IDs(2))
			return err
		}, hintActed},
		"forget": {func(l *Ledger) error {
			_, _, err := l.Forget(t.Context(), "operator:ann", ledger.IDs(2))
			return err
		}, hintActed},
		"decide": {func(l *Ledger) error {
			return l.Decide(t.Context(), 3, "ann", ledger.Result{Outcome: ledger.OutcomeDone})
		}, hintActed},
		"claim": {func(l *Ledger) error {
			_, err := l.Claim(t.Context(), ledger.Claim{Kind: "page", Agent: "ann", Limit: 1, Resume: true})
			return err
		}, hintClaim},
		"count": {func(l *Ledger) error {
			_, err := l.Count(t.Context(), ledger.Filter{})
			return err
		}, hintAgain},
	}
	for name, c := range calls {
		for how, lose := range map[string]func(res *http.Response) (*http.Response, error){
			"cut":      func(*http.Response) (*http.Response, error) { return nil, cutError{} },
			"replaced": func(*http.Response) (*http.Response, error) { return page(http.StatusBadGateway), nil },
			"no connection": func(*http.Response) (*http.Response, error) {
				return nil, &net.OpError{Op: "dial", Err: cutError{}}
			},
		} {
			if name == "count" && how != "cut" {
				continue // it is repeated, and waits in between
			}
			r := newRig(t, everything)
			r.fill()
			server := r.http.client.Transport
			r.http.client.Transport = tripper(func(q *http.Request) (*http.Response, error) {
				res, err := server.RoundTrip(q)
				if err != nil || strings.HasSuffix(q.URL.Path, "/walk") { // an act lists its items first
					return res, err
				}
				res.Body.Close()
				return lose(res)
			})
			want := c.hint
			if how == "no connection" {
				want = hintAgain
			}
			if err := c.do(r.http); failure.Explain(err).Hint != want || !errors.Is(err, ledger.ErrUnavailable) {
				t.Errorf("%s, %s: %v (%s)", name, how, err, ledger.Hint(err))
			}
		}
	}
}

// TestInvalidItems: an item that the ledger refuses is refused over HTTP with the same error, and nothing is added.
func TestInvalidItems(t *testing.T) {
	r := newRig(t, everything)
	good := ledger.NewItem{Kind: "page", Key: "k"}
	for _, bad := range []ledger.NewItem{{Kind: "page", Key: "\xff"}, {Kind: "page", Key: "k", Scope: "\xff"},
		{Kind: "page", Key: "k", Fingerprint: "\xff"}, {Kind: "page", Key: "k", ShardKey: "a\xff"},
		{Kind: "page", Key: strings.Repeat("k", 3000)}, {Kind: "page"}, {Kind: "Page", Key: "k"}} {
		_, want := r.l.Add(t.Context(), good, bad)
		_, added := r.http.Add(t.Context(), good, bad)
		_, tried := r.http.Try(t.Context(), good, bad)
		if want == nil || !cmp.Equal(want, added) || !cmp.Equal(want, tried) {
			t.Errorf("%+v: %v and %v, over the database %v", bad, added, tried, want)
		}
	}
	if n, err := r.l.Count(t.Context(), ledger.Filter{}); n != 0 || err != nil {
		t.Errorf("%d items, %v", n, err)
	}
}

// TestFilters: the server gets each term of a filter as it was parsed.
func TestFilters(t *testing.T) {
	r := newRig(t, everything)
	server := r.http.client.Transport
	var got calls.CountIn
	r.http.client.Transport = tripper(func(q *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(q.Body)
		must.OK(t, err)
		got = calls.CountIn{}
		must.OK(t, json.Unmarshal(body, &got))
		q.Body = io.NopCloser(bytes.NewReader(body))
		return server.RoundTrip(q)
	})
	for term := range strings.FieldsSeq(filter.Terms) {
		f, err := filter.Parse(term+" state:dead", time.Now().UTC())
		must.OK(t, err)
		must.Do(t)(r.http.Count(t.Context(), f))
		if diff := cmp.Diff(f, got.Filter); diff != "" {
			t.Errorf("%s: %s", term, diff)
		}
	}
}

// acts are calls that change a ledger as fill makes it.
var acts = []func(context.Context, ledgers.Any) (any, error){
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Add(ledger.AddingAct(c, "operator:ann", "again"), ledger.NewItem{Kind: "page", Key: "one",
			Payload: []byte(`{"b":2}`), Given: []string{"b"}, Again: ledger.Again{DoneBefore: time.Now()}},
			ledger.NewItem{Kind: "page", Key: "new"}))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		var ids []int64
		n, err := l.Retry(c, "operator:ann", ledger.Filter{States: []ledger.State{ledger.StateDead}},
			ledger.OnChanged(func(told []int64) { ids = append(ids, told...) }), ledger.WithPriority(-1))
		return both(n, ids, err)
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Place(c, "operator:ann", ledger.Filter{KeyHas: "i"}, -2))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Cancel(ledger.OneAct(c, "--reason x"), "operator:ann", ledger.IDs(5), ledger.WithReason("no more")))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.Reopen(c, "operator:ann", ledger.IDs(5, 6)))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.PutOff(c, "operator:ann", ledger.IDs(6), time.Now().Add(time.Hour)))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return nil, l.Decide(c, 3, "ann", ledger.Result{Outcome: ledger.OutcomeDone, Output: []byte("{}")})
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return nil, l.Decide(c, 3, "ann", ledger.Result{Outcome: ledger.OutcomeDone})
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.DecideAll(c, "ann", ledger.Filter{}, ledger.Result{Outcome: ledger.OutcomeSnoozed}))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.ForceRelease(c, "operator:ann", ledger.Filter{Agents: []string{"ann"}}))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return both(l.Forget(c, "operator:ann", ledger.IDs(3)))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.EditKind(c, "operator:ann", "page", func(k *ledger.Kind, known bool) {
			k.MaxFailures = map[bool]int{true: 7}[known]
		}))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.EditKind(c, "operator:ann", "fresh", func(k *ledger.Kind, known bool) { k.Paused = !known }))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return any1(l.EditKind(c, "operator:ann", "page", func(k *ledger.Kind, _ bool) { k.MaxFailures = -1 }))
	},
	func(c context.Context, l ledgers.Any) (any, error) {
		return nil, l.Define(c, ledger.Agent{Name: "w", Host: "h"}, "page", "page@2+aaaaaa", `{"a":1}`)
	},
}

// TestActs: each call that changes something does over HTTP what it does over the database. The journal has the token
// beside the actor.
func TestActs(t *testing.T) {
	local, remote := newRig(t, everything), newRig(t, everything)
	local.fill()
	remote.fill()
	for i, act := range acts {
		want, wantErr := act(t.Context(), local.l)
		got, err := act(t.Context(), remote.http)
		if diff := cmp.Diff(want, got, equal); diff != "" && wantErr == nil {
			t.Errorf("act %d answers otherwise: %s", i, diff)
		}
		if (err == nil) != (wantErr == nil) || err != nil && failure.Explain(err).Code != failure.Explain(wantErr).Code {
			t.Errorf("act %d: error %v, over the database %v", i, err, wantErr)
		}
	}
	for name, look := range map[string]func(l *ledger.Ledger) (any, error){
		"items": func(l *ledger.Ledger) (any, error) {
			items, err := all(l.List(t.Context(), ledger.Filter{}, 0))
			for i := range items {
				items[i].EndedBy = strings.TrimSuffix(items[i].EndedBy, " via api:all")
			}
			return items, err
		},
		"kinds": func(l *ledger.Ledger) (any, error) { return any1(l.Kinds(t.Context())) },
		"journal": func(l *ledger.Ledger) (any, error) {
			entries, err := l.Journal(t.Context(), ledger.JournalQuery{Limit: 100})
			for i := range entries {
				entries[i].Actor = strings.TrimSuffix(entries[i].Actor, " via api:all")
			}
			return entries, err
		},
	} {
		want, err := look(local.l)
		local.ok(err)
		got, err := look(remote.l)
		remote.ok(err)
		if diff := cmp.Diff(want, got, equal); diff != "" {
			t.Errorf("the %s differ: %s", name, diff)
		}
	}
}

// TestDefinitionConflict: an agent with other settings gets the conflict, with the other agents and the differences.
func TestDefinitionConflict(t *testing.T) {
	r := newRig(t, everything)
	ctx := t.Context()
	r.ok(r.l.Define(ctx, ledger.Agent{Name: "a", Host: "h"}, "page", "page@1+aaaaaa", `{"size":1}`))
	err := r.http.Define(ctx, ledger.Agent{Name: "b", Host: "h"}, "page", "page@1+bbbbbb", `{"size":2}`)
	conflict, ok := errors.AsType[*ledger.DefinitionError](err)
	if !ok || conflict.Agents[0].Name != "a" || len(conflict.Differences()) != 1 {
		t.Errorf("got %v", err)
	}
}

// TestRefused: an error of the server ends a command as one of the database would, and a token is not sent in clear.
func TestRefused(t *testing.T) {
	r := newRig(t, access.Grant{Name: "reader", Scopes: []access.Scope{access.Read}})
	r.fill()
	explain := func(err error) string {
		f := failure.Explain(err)
		return fmt.Sprintf("%d %s", f.Exit, f.Code)
	}
	_, err := r.http.Add(t.Context(), ledger.NewItem{Kind: "page", Key: "k"})
	if got := explain(err); got != "12 scope" || !errors.Is(err, ledger.ErrDenied) {
		t.Errorf("without the scope: %s, %v", got, err)
	}
	if it, err := r.http.Get(t.Context(), 1); err != nil || it.Payload != nil {
		t.Errorf("a payload without the scope: %s, %v", it.Payload, err)
	}
	_, err = Open(t.Context(), Config{At: r.at, Token: access.NewToken()})
	if got := explain(err); got != "12 unauthorized" {
		t.Errorf("a wrong token: %s, %v", got, err)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, err = Open(t.Context(), Config{At: dburl.Remote(other.URL)})
	if got := explain(err); got != "10 no_ledger" {
		t.Errorf("another server: %s, %v", got, err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	_, err = Open(t.Context(), Config{At: dburl.Remote(gone.URL)})
	if got := explain(err); got != "5 unavailable" || strings.Contains(err.Error(), "/calls/") {
		t.Errorf("no server: %s, %v", got, err)
	}
	http.DefaultClient.CloseIdleConnections()
}
