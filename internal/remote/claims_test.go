package remote

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// cutAtRandom breaks off half of the calls of a rig: before, after or while the server works on them.
func (r *rig) cutAtRandom() (cuts func() int) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	n := 0
	r.http.client.Transport = cutting{r.http.client.Transport, func(path string) (before, after bool,
		within time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasSuffix(path, "/hints") {
			return false, false, 0
		}
		drawn := random.IntN(6)
		if drawn < 3 {
			n++
		}
		if drawn == 2 {
			within = 1 + rand.N(time.Millisecond)
		}
		return drawn == 0, drawn == 1, within
	}}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// add adds n items.
func (r *rig) add(n int) {
	r.t.Helper()
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "page", Key: fmt.Sprint(i)}
	}
	for some := range slices.Chunk(items, bounds.MaxBatch) {
		_, err := r.l.Add(r.t.Context(), some...)
		r.ok(err)
	}
}

// TestCutCalls: a worker whose calls are cut at random moments, before they reach the server or before their answer is
// back, works each item once, and none is left to the end of a lease.
func TestCutCalls(t *testing.T) {
	r := newRig(t, everything)
	const items = 1000
	r.add(items)
	cuts := r.cutAtRandom()
	var mu sync.Mutex
	worked := map[int64]int{}
	w, err := worker.New(worker.Config{Ledger: r.http, Concurrency: 32, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]worker.Handler{"page": worker.Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
			mu.Lock()
			defer mu.Unlock()
			worked[ls.ID]++
			return ledger.Done(nil)
		})}})
	r.ok(err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	rep, err := w.Drain(ctx, 0)
	r.ok(err)
	if rep.Ready+rep.Held+rep.Waiting != 0 || len(worked) != items || cuts() < 5 {
		t.Errorf("worked %d of %d items, %+v, after %d cuts", len(worked), items, rep, cuts())
	}
	for id, n := range worked {
		if n != 1 {
			t.Errorf("item %d was worked %d times", id, n)
		}
	}
}

// cutClaims is how many items TestCutClaims has; about as many claims are cut.
var cutClaims = flag.Int("claims", 400, "items of TestCutClaims")

// TestCutClaims: claims that are cut at random moments lose nothing and double nothing. Each item is granted once to
// the holder, and the holder ends it once. Nothing waits for the end of a lease.
func TestCutClaims(t *testing.T) {
	r := newRig(t, everything)
	r.add(*cutClaims)
	r.cutAtRandom()
	var mu sync.Mutex
	cut := 0 // claims
	granted := map[int64]int{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(*cutClaims)*100*time.Millisecond)
	defer cancel()
	hold := func(agent string) {
		for open := int64(1); open > 0; {
			leases, _, err := r.http.ClaimWithin(ctx, ledger.Claim{Kind: "page", Agent: agent, Limit: 1, TTL: time.Hour})
			switch {
			case errors.Is(err, ledger.ErrUnavailable):
				mu.Lock()
				cut++
				mu.Unlock()
				continue
			case err != nil:
				t.Error(err)
				return
			}
			mu.Lock()
			for _, ls := range leases {
				granted[ls.ID]++
			}
			mu.Unlock()
			for _, ls := range leases {
				for err := error(ledger.ErrUnavailable); errors.Is(err, ledger.ErrUnavailable); {
					err = r.http.Finish(ctx, ledger.Ending{Lease: ls, Result: ledger.Done(nil)})[0]
					if err != nil && !errors.Is(err, ledger.ErrUnavailable) {
						t.Error(err)
					}
				}
			}
			if len(leases) == 0 { // a claim that was cut may have one still
				if open, err = r.l.Count(ctx, ledger.Filter{States: []ledger.State{ledger.StateReady,
					ledger.StateLeased}}); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}
	var holders sync.WaitGroup
	for n := range 4 {
		holders.Go(func() { hold(fmt.Sprint("w", n)) })
	}
	holders.Wait()
	done, err := r.l.Count(t.Context(), ledger.Filter{States: []ledger.State{ledger.StateDone}})
	r.ok(err)
	t.Logf("%d claims were cut", cut)
	if int(done) != *cutClaims || len(granted) != *cutClaims || cut < *cutClaims/2 {
		t.Errorf("%d of %d are done, %d were granted, %d claims were cut", done, *cutClaims, len(granted), cut)
	}
	for id, n := range granted {
		if n != 1 {
			t.Errorf("item %d was granted %d times", id, n)
		}
	}
}

// tripper is a RoundTripper.
type tripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestProxyAnswers: a proxy answers in the place of the server, or of its answer. The worker keeps its results, and
// what such a claim leased is not left to the end of the lease.
func TestProxyAnswers(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusInternalServerError, 520} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, everything)
			const items = 20
			r.add(items)
			var mu sync.Mutex
			calls, worked := map[string]int{}, map[int64]int{}
			server := r.http.client.Transport
			r.http.client.Transport = tripper(func(q *http.Request) (*http.Response, error) {
				path := strings.TrimPrefix(q.URL.Path, base)
				mu.Lock()
				calls[path]++
				n := calls[path]
				mu.Unlock()
				if n > 4 || path != "/claims" && path != "/leases/finish" {
					return server.RoundTrip(q)
				}
				if n > 2 {
					res, err := server.RoundTrip(q)
					if err != nil {
						return nil, err
					}
					res.Body.Close()
				}
				return page(status), nil
			})
			w, err := worker.New(worker.Config{Ledger: r.http, Concurrency: 8, Logger: slog.New(slog.DiscardHandler),
				Handlers: map[string]worker.Handler{"page": worker.Func(func(_ context.Context, ls *ledger.Lease) ledger.Result {
					mu.Lock()
					defer mu.Unlock()
					worked[ls.ID]++
					return ledger.Done([]byte(ls.Key))
				})}})
			r.ok(err)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			must.Do(t)(w.Drain(ctx, 0))
			all, err := all(r.l.Walk(t.Context(), &ledger.Walk{Output: true}))
			r.ok(err)
			for _, it := range all {
				if it.State != ledger.StateDone || string(it.Output) != it.Key || worked[it.ID] != 1 || it.Attempt != 1 {
					t.Errorf("item %d is %s after %d attempts, worked %d times, output %q", it.ID, it.State, it.Attempt,
						worked[it.ID], it.Output)
				}
			}
		})
	}
}

// page is a page of a proxy.
func page(status int) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)),
		Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<html>"))}
}

// problem is an error of the API.
func problem(status int, code string) *http.Response {
	res := page(status)
	res.Header.Set("Content-Type", "application/problem+json")
	res.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"code":%q,"detail":"it is %[1]s"}`, code)))
	return res
}

// TestLargeEnd: an end with more than a list may have is recorded, with all that it emits.
func TestLargeEnd(t *testing.T) {
	r := newRig(t, everything)
	r.add(1)
	emit := make([]ledger.NewItem, calls.MostAdded+1)
	for i := range emit {
		emit[i] = ledger.NewItem{Kind: "part", Key: fmt.Sprint(i), Payload: bytes.Repeat([]byte{'1'}, 1800)}
	}
	w, err := worker.New(worker.Config{Ledger: r.http, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]worker.Handler{"page": worker.Func(func(context.Context, *ledger.Lease) ledger.Result {
			return ledger.Done(nil, emit...)
		})}})
	r.ok(err)
	must.Do(t)(w.Drain(t.Context(), 0))
	it, err := r.l.Get(t.Context(), 1)
	r.ok(err)
	n, err := r.l.Count(t.Context(), ledger.Filter{Kinds: []string{"part"}})
	r.ok(err)
	if it.State != ledger.StateDone || int(n) != len(emit) {
		t.Errorf("it is %s (%s), with %d items of %d", it.State, it.Error, n, len(emit))
	}
}

// TestTooLarge: ends that are too large together are recorded one by one. One that is too large by itself is invalid,
// with the reason.
func TestTooLarge(t *testing.T) {
	big := strings.Repeat("x", 4000)
	for _, c := range []struct {
		name   string
		answer func() *http.Response
		result ledger.Result
		want   string
	}{
		{"a proxy", func() *http.Response { return page(http.StatusRequestEntityTooLarge) },
			ledger.Done([]byte(big)), "output: 4000 bytes are more than can be sent at once: "},
		{"the server", func() *http.Response { return problem(http.StatusRequestEntityTooLarge, "too_large") },
			ledger.Done(nil, ledger.NewItem{Kind: "part", Key: "k", Payload: []byte(big)}),
			"emit: 1 items are more than can be sent at once: it is too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, everything)
			r.add(3)
			server := r.http.client.Transport
			r.http.client.Transport = tripper(func(q *http.Request) (*http.Response, error) {
				if q.ContentLength > 300 {
					return c.answer(), nil
				}
				return server.RoundTrip(q)
			})
			leases, _, err := r.http.ClaimWithin(t.Context(), ledger.Claim{Kind: "page", Agent: "w", Limit: 3, TTL: time.Hour})
			r.ok(err)
			ends := []ledger.Ending{{Lease: leases[0], Result: ledger.Done(nil)}, {Lease: leases[1], Result: c.result},
				{Lease: leases[2], Result: ledger.Done(nil)}}
			errs := r.http.Finish(t.Context(), ends...)
			for i, e := range ends {
				switch {
				case i == 1:
					if !errors.Is(errs[i], ledger.ErrInvalid) || !strings.HasPrefix(errs[i].Error(), c.want) {
						t.Errorf("too large: %v", errs[i])
					}
				case errs[i] != nil || e.State != ledger.StateDone:
					t.Errorf("end %d: %v, %s", i, errs[i], e.State)
				}
			}
		})
	}
}

// ours is the agent and the kind of the claims of tests.
var ours = holder{"w", "page"}

// TestLostClaimOfMany: the leases of a claim whose answer was lost arrive with later, smaller claims. Then claims
// resume no more, even while more items are ready.
func TestLostClaimOfMany(t *testing.T) {
	for _, c := range []struct{ items, claims int }{{4, 5}, {9, 5}} {
		r := newRig(t, everything)
		r.add(c.items)
		now, cut := time.Now(), true
		r.http.claims.now = func() time.Time { return now }
		r.http.client.Transport = cutting{r.http.client.Transport, func(string) (before, after bool, _ time.Duration) {
			return false, cut, 0
		}}
		granted := map[int64]bool{}
		claim := func(limit int) {
			leases, _, err := r.http.ClaimWithin(t.Context(), ledger.Claim{Kind: ours.kind, Agent: ours.agent, Limit: limit,
				TTL: time.Hour})
			if err != nil && !cut {
				t.Fatal(err)
			}
			for _, ls := range leases {
				granted[ls.ID] = true
			}
		}
		claim(4)
		cut = false
		for range c.claims {
			now = now.Add(lending.ClaimTime + time.Second)
			claim(1)
		}
		if len(granted) != min(c.items, c.claims) || !r.http.claims.lost[ours].IsZero() {
			t.Errorf("%d of %d items arrived by %d claims; lost: %v", len(granted), c.items, c.claims, r.http.claims.lost)
		}
	}
}

// TestKnownLeases: a lease that this program does not hold any more is not counted as held, so that claims can resume.
// An end that was refused is reported once more, and until then the worker does not get its lease again.
func TestKnownLeases(t *testing.T) {
	none := ledger.NewItem{Kind: "part"}
	for _, c := range []struct {
		name string
		do   func(r *rig, ls *ledger.Lease) error
		want int
	}{
		{"held", func(r *rig, ls *ledger.Lease) error { return r.http.Held(t.Context(), ls)[0] }, 1},
		{"lost, told when renewed", func(r *rig, ls *ledger.Lease) error {
			must.Do(t)(r.l.ForceRelease(t.Context(), "ann", ledger.IDs(ls.ID)))
			_, errs := r.http.Extend(t.Context(), time.Minute, ls)
			return errs[0]
		}, 0},
		{"lost, told when looked for", func(r *rig, ls *ledger.Lease) error {
			must.Do(t)(r.l.ForceRelease(t.Context(), "ann", ledger.IDs(ls.ID)))
			return r.http.Held(t.Context(), ls)[0]
		}, 0},
		{"refused", func(r *rig, ls *ledger.Lease) error {
			return r.http.Finish(t.Context(), ledger.Ending{Lease: ls, Result: ledger.Done(nil, none)})[0]
		}, 1},
		{"refused, with a code of the handler", func(r *rig, ls *ledger.Lease) error {
			res := ledger.Done(nil, none)
			res.Code = worker.CodeInvalid
			return r.http.Finish(t.Context(), ledger.Ending{Lease: ls, Result: res})[0]
		}, 1},
		{"refused for good", func(r *rig, ls *ledger.Lease) error {
			res := ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: worker.CodeInvalid,
				Worker: strings.Repeat("w", bounds.MaxWorker+1)}
			return r.http.Finish(t.Context(), ledger.Ending{Lease: ls, Result: res})[0]
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, everything)
			r.add(1)
			leases, _, err := r.http.ClaimWithin(t.Context(), ledger.Claim{Kind: ours.kind, Agent: ours.agent, Limit: 1})
			r.ok(err)
			if err := c.do(r, leases[0]); (err == nil) != (c.name == "held") || len(r.http.claims.held[ours]) != c.want {
				t.Errorf("%v, %d leases are known", err, len(r.http.claims.held[ours]))
			}
		})
	}
}

// TestNamedClaim: as on a database, a claim whose named item is not ready, or is not there, returns no lease and no
// error.
func TestNamedClaim(t *testing.T) {
	r := newRig(t, everything)
	r.add(3)
	for want := 1; want >= 0; want-- {
		leases, _, err := r.http.ClaimWithin(t.Context(), ledger.Claim{Kind: ours.kind, Agent: ours.agent, Limit: 3,
			Items: []int64{2}})
		if err != nil || len(leases) != want || want > 0 && leases[0].ID != 2 {
			t.Errorf("%v, %v", leases, err)
		}
	}
	if leases, _, err := r.http.ClaimWithin(t.Context(), ledger.Claim{Kind: ours.kind, Agent: ours.agent, Limit: 1,
		Items: []int64{999}}); err != nil || len(leases) > 0 {
		t.Errorf("of an item that is not there: %v, %v", leases, err)
	}
}

// TestLimitOfResuming: a claim that resumes asks for all held leases and n more, up to the bound of a claim.
func TestLimitOfResuming(t *testing.T) {
	for _, c := range []struct{ held, n, want int }{{0, 1000, 1000}, {3, 2, 5}, {3, 1000, 1000}, {999, 5, 1000},
		{1000, 1, 0}} {
		known := map[string]bool{}
		for i := range c.held {
			known[fmt.Sprint(i)] = true
		}
		of := claims{held: map[holder]map[string]bool{ours: known}, lost: map[holder]time.Time{ours: time.Now()},
			resuming: map[holder]int{}}
		if got := of.begin(ours, c.n); got != c.want {
			t.Errorf("%d are held, a claim of %d asks for %d, not %d", c.held, c.n, got, c.want)
		}
	}
}

// TestLateClaim: a claim that was cut leases an item when the next claim has been answered already. The item is
// granted to the holder by a later claim, until the server cannot work on the cut one any more.
func TestLateClaim(t *testing.T) {
	r := newRig(t, everything)
	r.add(2)
	now := time.Now()
	r.http.claims.now = func() time.Time { return now }
	var cut *http.Request
	var takes time.Duration // of a claim
	server := r.http.client.Transport
	r.http.client.Transport = tripper(func(q *http.Request) (*http.Response, error) {
		now = now.Add(takes)
		if cut == nil {
			cut = q.Clone(t.Context())
			return nil, cutError{}
		}
		return server.RoundTrip(q)
	})
	claim := func() int {
		leases, _, err := r.http.ClaimWithin(t.Context(), ledger.Claim{Kind: "page", Agent: "w", Limit: 1, TTL: time.Hour})
		if err != nil && !errors.Is(err, ledger.ErrUnavailable) {
			t.Fatal(err)
		}
		return len(leases)
	}
	if n := claim(); n != 0 || cut == nil {
		t.Fatalf("%d items of a claim that was cut", n)
	}
	if n := claim(); n != 1 {
		t.Fatalf("%d items of the next claim", n)
	}
	res, err := server.RoundTrip(cut) // now it reaches the server; its answer reaches no one
	r.ok(err)
	res.Body.Close()
	if n, err := r.l.Count(t.Context(), ledger.Filter{States: []ledger.State{ledger.StateLeased}}); err != nil || n != 2 {
		t.Fatalf("%d items are leased, %v", n, err)
	}
	resumes := func() bool { return !r.http.claims.lost[ours].IsZero() }
	now, takes = now.Add(lending.ClaimTime), time.Second
	if n := claim(); n != 1 || !resumes() {
		t.Errorf("%d items that the late claim leased; more of them may come, and claims resume: %t", n, resumes())
	}
	if n := claim(); n != 0 || resumes() {
		t.Errorf("%d items, and claims resume: %t", n, resumes())
	}
}
