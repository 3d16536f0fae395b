package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// underActs runs a test beside a server that carries out acts, in a bubble of time.
func underActs(t *testing.T, test func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.api.Run(ctx)
		}()
		test(t, s)
		end()
		<-ended
	})
}

// dead adds items of a kind and gives them up.
func (s *site) dead(kind string, n int) {
	s.t.Helper()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	s.add(kind, keys...)
	leases, err := s.l.Claim(s.t.Context(), ledger.Claim{Kind: kind, Agent: "ann", Limit: n})
	if err != nil || len(leases) != n {
		s.t.Fatal(len(leases), err)
	}
	ends := make([]ledger.Ending, n)
	for i, l := range leases {
		ends[i] = ledger.Ending{Lease: l, Result: ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: "dns"}}
	}
	for _, err := range s.l.Finish(s.t.Context(), ends...) {
		must.OK(s.t, err)
	}
}

// count is how many items of a filter there are.
func (s *site) count(state ledger.State) int64 {
	s.t.Helper()
	n, err := s.l.Count(s.t.Context(), ledger.Filter{States: []ledger.State{state}})
	must.OK(s.t, err)
	return n
}

// put asks for an act.
func (s *site) put(id string, r answer.ActRequest) (a answer.BulkAct) {
	s.t.Helper()
	body, err := json.Marshal(r)
	must.OK(s.t, err)
	s.do("operate", http.MethodPut, "/acts/"+id, string(body)).ok(&a)
	return a
}

func (s *site) get(id string) (a answer.BulkAct) {
	s.t.Helper()
	s.do("operate", http.MethodGet, "/acts/"+id, "").ok(&a)
	return a
}

// TestActOnNothing: an empty filter is refused, also for a token that is bound to kinds. A text that is no UUID names
// no act.
func TestActOnNothing(t *testing.T) {
	underActs(t, func(t *testing.T, s *site) {
		s.dead("mail", 2)
		for _, where := range []string{"", " ", "\t"} {
			body := string(ledger.JSON(answer.ActRequest{Act: "retry", Where: where}))
			for _, token := range []string{"mail", "operate"} {
				got := s.do(token, http.MethodPut, "/acts/"+uuid.NewString(), body)
				if got.StatusCode/100 != 4 || !strings.Contains(string(got.text), "the filter is empty") {
					t.Errorf("%s asks with %q: %d %s", token, where, got.StatusCode, got.text)
				}
			}
		}
		id := strings.Repeat("0", 34)
		s.put("00000000-0000-0000-0000-000000000000", answer.ActRequest{Act: "retry", Where: "kind:mail"})
		for _, none := range []string{id, "00000000-0000-0000-0000-0000000000zz"} {
			if got := s.do("operate", http.MethodDelete, "/acts/"+none, ""); got.StatusCode != http.StatusNotFound {
				t.Errorf("%s names an act: %d %s", none, got.StatusCode, got.text)
			}
		}
	})
}

// TestActPutsOff: retry with a time in the future makes items wait until then, ready ones as well. With a past time it
// makes them ready. Without a hold an act begins at once.
func TestActPutsOff(t *testing.T) {
	underActs(t, func(t *testing.T, s *site) {
		s.dead("page", 3)
		s.add("page", "new")
		at, now := time.Now().Add(time.Hour).UTC().Truncate(time.Second), 0.0
		off := answer.ActRequest{Act: "retry", Where: "kind:page", Hold: &now, Due: answer.Moment{Time: at}}
		id := uuid.NewString()
		s.put(id, off)
		synctest.Wait()
		if a := s.put(id, off); a.State != "done" || a.Changed != 4 || s.count(ledger.StateWaiting) != 4 {
			t.Errorf("%+v", a)
		}
		entries, err := s.l.Journal(t.Context(), ledger.JournalQuery{Limit: 1})
		if err != nil || len(entries) != 1 || entries[0].Action != "put-off" ||
			!strings.Contains(entries[0].Detail, "--due "+at.Format(time.RFC3339)) {
			t.Errorf("%+v, %v", entries, err)
		}
		off.Due.Time = time.Now()
		s.put(uuid.NewString(), off)
		synctest.Wait()
		if n := s.count(ledger.StateReady); n != 4 {
			t.Errorf("%d items are ready again", n)
		}
		for _, r := range []answer.ActRequest{
			{Act: "cancel", Where: "kind:page", Due: answer.Moment{Time: at}},
			{Act: "retry", Where: "kind:page", Due: answer.Moment{Time: at}, Place: new(int16)},
			{Act: "retry", Where: "kind:page", Due: answer.Moment{Time: at.Add(2 * bounds.MaxDelay)}},
		} {
			body, err := json.Marshal(r)
			must.OK(t, err)
			s.do("operate", http.MethodPut, "/acts/"+uuid.NewString(), string(body)).fails(http.StatusBadRequest, "bad_request")
		}
	})
}

// TestActIsHeld: a dry run only counts. An act changes nothing for ten seconds, in which it can be undone. Then it
// changes all items that match, in one entry of the journal. The same request again is the same act.
func TestActIsHeld(t *testing.T) {
	underActs(t, func(t *testing.T, s *site) {
		s.dead("page", 1200)
		s.dead("mail", 3)
		retry := answer.ActRequest{Act: "retry", Where: "kind:page state:dead", Reason: "dns is back"}
		dry := retry
		dry.DryRun = true
		undone, done := uuid.NewString(), uuid.NewString()
		if a := s.put(undone, dry); a.State != "dry" || a.Matched != 1200 || !a.Whole {
			t.Errorf("%+v", a)
		}
		s.do("operate", http.MethodGet, "/acts/"+undone, "").fails(http.StatusNotFound, "not_found")
		s.put(undone, retry) // the dry run was not kept
		<-time.After(9 * time.Second)
		var a answer.BulkAct
		s.do("operate", http.MethodDelete, "/acts/"+undone, "").ok(&a)
		<-time.After(time.Minute)
		if a = s.get(undone); a.State != "undone" || a.Changed != 0 || s.count(ledger.StateDead) != 1203 {
			t.Errorf("%+v", a)
		}
		for range 3 {
			if a = s.put(done, retry); a.State != "held" || a.Matched != 1200 {
				t.Errorf("%+v", a)
			}
		}
		<-time.After(11 * time.Second)
		if a = s.put(done, retry); a.State != "done" || a.Changed != 1200 || s.count(ledger.StateDead) != 3 {
			t.Errorf("%+v", a)
		}
		entries, err := s.l.Journal(t.Context(), ledger.JournalQuery{Limit: 10})
		if err != nil || len(entries) != 1 || entries[0].Changed != 1200 || entries[0].Actor != "api:operate" {
			t.Errorf("%+v, %v", entries, err)
		}
		other := retry
		other.Act = "cancel"
		body, _ := json.Marshal(other)
		s.do("operate", http.MethodPut, "/acts/"+done, string(body)).fails(http.StatusConflict, "conflict")
		s.do("operate", http.MethodDelete, "/acts/"+done, "").fails(http.StatusConflict, "conflict")
	})
}

// TestActIsStopped: an act that runs is stopped after its page, and tells exactly what it has changed.
func TestActIsStopped(t *testing.T) {
	underActs(t, func(t *testing.T, s *site) {
		s.dead("page", 1200)
		id := uuid.New()
		x := &act{id: id, owner: "operate", filter: ledger.Filter{Kinds: []string{"page"}}, begins: time.Now(),
			shown: answer.BulkAct{Act: "cancel"}}
		entered, leave := make(chan struct{}), make(chan struct{})
		x.do = func(ctx context.Context, f ledger.Filter) (int64, error) {
			entered <- struct{}{}
			<-leave
			return s.l.Cancel(ctx, "ann", f)
		}
		must.Do(t)(s.api.acts.add(x))
		<-entered
		var a answer.BulkAct
		s.do("operate", http.MethodDelete, "/acts/"+id.String(), "").ok(&a)
		if a.State != "stopping" {
			t.Errorf("%+v", a)
		}
		close(leave)
		synctest.Wait()
		if a = s.get(id.String()); a.State != "stopped" || a.Changed != 500 || s.count(ledger.StateCancelled) != 500 {
			t.Errorf("%+v, %d are cancelled", a, s.count(ledger.StateCancelled))
		}
	})
}

// TestActIsStoppedInAPause: an act that waits for a ledger that cannot be reached is stopped without another try.
func TestActIsStoppedInAPause(t *testing.T) {
	underActs(t, func(t *testing.T, s *site) {
		s.dead("page", 1)
		tries, id := 0, uuid.New()
		x := &act{id: id, owner: "operate", filter: ledger.Filter{Kinds: []string{"page"}}, begins: time.Now(),
			shown: answer.BulkAct{Act: "cancel"}}
		x.do = func(context.Context, ledger.Filter) (int64, error) {
			tries++
			return 0, ledger.ErrUnavailable
		}
		must.Do(t)(s.api.acts.add(x))
		synctest.Wait()
		s.do("operate", http.MethodDelete, "/acts/"+id.String(), "")
		<-time.After(2 * tryAgain)
		if a := s.get(id.String()); a.State != "stopped" || tries != 1 {
			t.Errorf("%+v, %d tries", a, tries)
		}
	})
}

// TestActs does each sort of act.
func TestActs(t *testing.T) {
	underActs(t, func(t *testing.T, s *site) {
		none := 0.0
		do := func(r answer.ActRequest) answer.BulkAct {
			t.Helper()
			id := uuid.NewString()
			r.Hold = &none
			s.put(id, r)
			synctest.Wait()
			return s.get(id)
		}
		s.dead("page", 5)
		dry := answer.ActRequest{Act: "decide", Where: "kind:page", Outcome: "failed", DryRun: true}
		if a := s.put(uuid.NewString(), dry); a.Matched != 0 {
			t.Errorf("dead items are to be decided as failed: %+v", a)
		}
		for _, c := range []struct {
			r       answer.ActRequest
			changed int64
			state   ledger.State
			now     int64
		}{
			{answer.ActRequest{Act: "decide", Where: "id:1", Outcome: "done"}, 1, ledger.StateDone, 1},
			{answer.ActRequest{Act: "reopen", Where: "kind:page"}, 1, ledger.StateReady, 1},
			{answer.ActRequest{Act: "retry", Where: "id:2,3,4", Limit: 2}, 2, ledger.StateReady, 3},
			{answer.ActRequest{Act: "cancel", Where: "kind:page", Reason: "gone"}, 5, ledger.StateCancelled, 5},
			{answer.ActRequest{Act: "prune", Where: "id:4,5"}, 2, ledger.StateCancelled, 3},
			{answer.ActRequest{Act: "release", Where: "kind:page"}, 0, ledger.StateLeased, 0},
		} {
			if a := do(c.r); a.State != "done" || a.Changed != c.changed || s.count(c.state) != c.now {
				t.Errorf("%+v: %+v, %d are %s", c.r, a, s.count(c.state), c.state)
			}
		}
		if all := s.do("read", http.MethodGet, "/journal?limit=100", ""); !bytes.Contains(all.text,
			[]byte(`"decide","subject":"item 1","detail":"--where id:1 --outcome done`)) {
			t.Errorf("the journal does not tell what was decided: %s", all.text)
		}
		for _, c := range []struct{ body, code, field string }{
			{`{"act":"explode","where":"id:1"}`, "bad_request", "act"}, {`{"act":"retry","where":""}`, "bad_request", "where"},
			{`{"act":"retry","where":" "}`, "bad_request", "where"}, {`{"act":"retry","where":"stat:x"}`, "bad_filter", "where"},
			{`{"act":"decide","where":"id:1"}`, "bad_request", "outcome"},
			{`{"act":"retry","where":"id:1","outcome":"done"}`, "bad_request", "outcome"},
			{`{"act":"retry","where":"id:1","hold_s":61}`, "bad_request", "hold_s"},
			{`{"act":"retry","where":"id:1","limit":-1}`, "bad_request", "limit"},
			{`{"act":"cancel","where":"id:1","priority":2}`, "bad_request", "priority"},
			{`{"act":"retry","where":"id:1","priority":9}`, "invalid", "priority"},
			{`{"act":"decide","where":"id:1","outcome":"done","code":"HTTP 404"}`, "invalid", "code"},
			{`{"act":"retry","where":"payload.secret:1"}`, "scope", ""}} {
			p := s.do("operate", http.MethodPut, "/acts/"+uuid.NewString(), c.body).fails(codes[c.code].status, c.code)
			if p.Field != c.field {
				t.Errorf("%s: %+v", c.body, p)
			}
		}
		s.api.acts.all = slices.Repeat(s.api.acts.all[:1], maxActs)
		s.put(uuid.NewString(), answer.ActRequest{Act: "cancel", Where: "id:1", Hold: &none}) // in place of an ended one
		synctest.Wait()
		s.do("operate", http.MethodPut, "/acts/x", `{"act":"retry","where":"id:1"}`).fails(http.StatusBadRequest, "bad_request")
		s.do("operate", http.MethodGet, "/acts/"+uuid.NewString(), "").fails(http.StatusNotFound, "not_found")
	})
}
