package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/payload"
)

// grant adds a token with kinds.
func (s *site) grant(name string, kinds []string, scopes ...access.Scope) {
	s.tokens[name] = s.token(name, scopes...)
	s.granted[len(s.granted)-1].Kinds = kinds
	s.api.Guard.Set(nil, s.granted)
}

// TestNoKinds: a token that is bound to no kind sees and changes nothing.
func TestNoKinds(t *testing.T) {
	s := newSite(t)
	s.add("page", "a")
	s.grant("empty", []string{}, access.Admin)
	var list answer.List[answer.Item]
	if s.do("empty", http.MethodGet, "/items", "").ok(&list); len(list.Items) != 0 {
		t.Errorf("%+v", list.Items)
	}
	var n answer.Count
	if s.do("empty", http.MethodGet, "/items/count?where=state:ready", "").ok(&n); n.Count != 0 {
		t.Errorf("%+v", n)
	}
}

// TestEmitKinds: the end of an attempt adds items only of kinds that the token has.
func TestEmitKinds(t *testing.T) {
	s := newSite(t)
	s.add("mail", "m")
	s.grant("mails", []string{"mail"}, access.Work)
	lent := s.claim("mails", `{"kind":"mail","agent":"w"}`, 1)[0]
	end := func(kind string) string {
		return `{"endings":[{"token":"` + lent.Token + `","outcome":"done","emit":[{"kind":"` + kind + `","key":"x"}]}]}`
	}
	p := s.do("mails", http.MethodPost, "/leases/finish", end("push")).fails(http.StatusForbidden, "scope")
	if p.Field != "emit" {
		t.Errorf("the field is %q", p.Field)
	}
	if n, err := s.l.Count(t.Context(), ledger.Filter{Kinds: []string{"push"}}); n != 0 || err != nil {
		t.Errorf("%d items of another kind, %v", n, err)
	}
	if a := s.answers("mails", "finish", end("mail"))[0]; !a.Recorded {
		t.Errorf("%+v", a)
	}
}

// TestCallsOfOthers: any program may make the calls of ledgerd with any content. They reveal no more than the API does.
func TestCallsOfOthers(t *testing.T) {
	s := newSite(t)
	k := ledger.Kind{Name: "mail", Input: ledger.Input{Secret: []string{"password"}}}
	must.OK(t, s.l.SetKind(t.Context(), "ann", k))
	must.Do(t)(s.l.Add(t.Context(), ledger.NewItem{Kind: "mail", Key: "m", Payload: []byte(`{"password":"s3cret"}`)}))
	s.tokens["look"] = s.token("look", access.Read, access.Payload, access.Operate)
	for _, term := range []string{`{"Of":"x","Path":["password"],"Op":"~","Values":["s3"]}`,
		`{"Of":"payload","Path":[],"Op":"~","Values":["s3"]}`, `{"Of":"payload","Path":["n"],"Op":"~","Values":[]}`,
		`{"Of":"payload","Path":["n"],"Op":"?","Values":["1"]}`} {
		s.do("look", http.MethodPost, calls.Count.Path(), `{"Filter":{"Fields":[`+term+`]}}`).fails(http.StatusBadRequest,
			"bad_request")
	}
	for n, status := range map[int]int{maxParts - 1: http.StatusOK, maxParts: http.StatusBadRequest} {
		deep := strings.Repeat(`{"Also":[`, n) + "{}" + strings.Repeat("]}", n)
		flat := `{"Also":[` + strings.Repeat(`{"KeyHas":"a"},`, n-1) + "{}]}"
		fields := `{"Also":[` + strings.Repeat(`{"Fields":[{"Of":"payload","Path":["n"],"Op":":","Values":["1"]}]},`, n-1) + "{}]}"
		for _, filter := range []string{deep, flat, fields} {
			r := s.do("look", http.MethodPost, calls.Count.Path(), `{"Filter":`+filter+"}")
			if r.StatusCode != status {
				t.Errorf("%d parts in a filter: %d %s", n+1, r.StatusCode, r.text)
			}
		}
	}
	s.do("look", http.MethodPost, calls.Standing.Path(), `{"Kind":"mail","Shard":{"Index":7,"Count":5}}`).fails(
		http.StatusUnprocessableEntity, "invalid")
	have, err := s.l.Kind(t.Context(), "mail")
	must.OK(t, err)
	want := have
	want.Input.Secret, want.MaxFailures = nil, 3
	var out calls.EditKindOut
	s.do("look", http.MethodPost, calls.EditKind.Path(), string(ledger.JSON(calls.EditKindIn{Name: "mail", Actor: "x",
		Have: ledger.JSON(have), Want: want}))).ok(&out)
	now, err := s.l.Kind(t.Context(), "mail")
	if err != nil || out.Stale || now.MaxFailures != 3 || len(now.Input.Secret) != 1 {
		t.Errorf("stale %v, %+v, %v", out.Stale, now, err)
	}
	s.end("mail", ledger.Done([]byte(`"result"`)))
	if got := s.do("work", http.MethodPost, calls.LastOutput.Path(), `{"ID":1}`); got.StatusCode != http.StatusForbidden ||
		strings.Contains(string(got.text), "result") {
		t.Errorf("%d %s", got.StatusCode, got.text)
	}
}

// TestHeartbeatsOfOthers: a token bound to kinds may not replace the heartbeat of an agent that works other kinds.
func TestHeartbeatsOfOthers(t *testing.T) {
	s := newSite(t)
	s.grant("mails", []string{"mail"}, access.Work)
	box := ledger.Agent{Name: "box", Host: "h", PID: 1, Process: "p", Kinds: map[string]string{"page": "page@1+a"}}
	idle := ledger.Agent{Name: "idle", Host: "h", PID: 1, Process: "p"}
	for _, a := range []ledger.Agent{box, idle} {
		must.OK(t, s.l.Beat(t.Context(), a, time.Minute))
	}
	s.add("page", "p")
	must.Do(t)(s.l.Claim(t.Context(), ledger.Claim{Kind: "page", Agent: "idle/2", Limit: 1}))
	beat := func(a ledger.Agent) reply {
		in := calls.BeatIn{Agent: a, TTL: time.Minute}
		return s.do("mails", http.MethodPost, calls.Beat.Path(), string(ledger.JSON(in)))
	}
	mails := map[string]string{"mail": "mail@1+a"}
	stalled := map[string]time.Time{"page": time.Now()}
	for name, a := range map[string]ledger.Agent{"of other kinds": {Name: "box"}, "same process": {Name: "box", Host: "h",
		PID: 1, Process: "p", Kinds: mails}, "of no kind": {Name: "idle", Kinds: mails},
		"stalled": {Name: "w", Kinds: mails, Stalled: stalled}} {
		if r := beat(a); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.text)
		}
		a.Stalled = nil
		in := calls.DefineIn{Agent: a, Kind: "mail", Definition: "mail@1+a"}
		if name != "stalled" {
			s.do("mails", http.MethodPost, calls.Define.Path(), string(ledger.JSON(in))).fails(http.StatusForbidden, "scope")
		}
	}
	own := ledger.Agent{Name: "w", Host: "h", PID: 7, Process: "q", Kinds: mails}
	for range 2 {
		if r := beat(own); r.StatusCode >= http.StatusBadRequest {
			t.Errorf("%d %s", r.StatusCode, r.text)
		}
		own.Process = "its successor"
	}
	if all, err := s.l.Agents(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("%+v, %v", all, err)
	}
}

// countsNone is a store that cannot count leases.
type countsNone struct{ ledger.Store }

func (countsNone) LeasedBy(context.Context) (map[string]int64, error) {
	return nil, ledger.ErrUnavailable
}

// TestOwnHeartbeat: a process that has beaten without kinds beats again, without a count of the leases.
func TestOwnHeartbeat(t *testing.T) {
	s := siteOver(t, ledger.New(countsNone{memory.New(memory.Options{})}, ledger.Options{}))
	s.grant("mails", []string{"mail"}, access.Work)
	own := ledger.Agent{Name: "w", Host: "h", PID: 7, Process: "q"}
	must.OK(t, s.l.Beat(t.Context(), own, time.Minute))
	own.Kinds = map[string]string{"mail": "mail@1+a"}
	in := calls.BeatIn{Agent: own, TTL: time.Minute}
	s.do("mails", http.MethodPost, calls.Beat.Path(), string(ledger.JSON(in))).ok(&calls.None{})
}

// TestNewerCallers: unknown fields in reports of a newer worker are ignored. An act with unknown fields is refused.
func TestNewerCallers(t *testing.T) {
	s := newSite(t)
	for _, body := range []string{`{"Agent":{"Name":"w","Host":"h","Process":"p","Colour":"red"},"TTL":60000000000}`,
		`{"Minutes":[],"Colour":"red"}`} {
		path := calls.Beat.Path()
		if body[2] == 'M' {
			path = calls.AddTallies.Path()
		}
		if r := s.do("work", http.MethodPost, path, body); r.StatusCode >= http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.text)
		}
	}
	s.do("operate", http.MethodPost, calls.Act.Path(), `{"Act":"cancel","Filter":{"IDs":[1],"Colours":["red"]}}`).fails(
		http.StatusBadRequest, "bad_request")
}

// TestJournalHides: the journal and the policy of a kind show values of payloads only to callers that may read them.
func TestJournalHides(t *testing.T) {
	s := newSite(t)
	value := func(text string) payload.Default { return payload.Default{Value: []byte(text)} }
	k := ledger.Kind{Name: "mail", Input: ledger.Input{Secret: []string{"password"}},
		Defaults: payload.Defaults{"password": value(`"s3cret"`), "list": value(`"friends"`),
			"accounts": value(`[{"password":"s3cret"}]`)}}
	must.OK(t, s.l.SetKind(t.Context(), "ann", k))
	ids := s.add("mail", "m")
	ctx := ledger.OneAct(t.Context(), "payload.password:s3cret payload.list:friends")
	must.Do(t)(s.l.Cancel(ctx, "ann", ledger.IDs(ids...)))
	s.tokens["look"] = s.token("look", access.Read, access.Payload, access.Operate)
	s.tokens["blind"] = s.token("blind", access.Read, access.Operate)
	for _, tt := range []struct {
		token        string
		secret, list bool
	}{{"admin", true, true}, {"look", false, true}, {"blind", false, false}} {
		ask := func(path, body string) string { return string(s.do(tt.token, http.MethodPost, path, body).text) }
		policies := ask(calls.Kinds.Path(), `{}`)
		journal := ask(calls.Journal.Path(), `{"Limit":9}`) + string(s.do(tt.token, http.MethodGet, "/journal", "").text)
		if strings.Contains(policies+journal, "s3cret") != tt.secret || strings.Contains(policies, "friends") != tt.list ||
			!strings.Contains(journal, "cancel") {
			t.Errorf("%s: %s %s", tt.token, policies, journal)
		}
	}
	for _, tt := range []struct { // an edit leaves what its caller does not see, and does not set it
		token, field string
		status       int
	}{{"look", "password", http.StatusForbidden}, {"look", "list", http.StatusOK}, {"blind", "list", http.StatusForbidden},
		{"blind", "", http.StatusOK}} {
		var have []ledger.Kind
		s.do(tt.token, http.MethodPost, calls.Kinds.Path(), `{}`).ok(&have)
		want := have[0]
		want.MaxFailures++
		if tt.field != "" {
			want.Defaults = payload.Defaults{tt.field: value(`"` + tt.token + `"`)}
		}
		r := s.do(tt.token, http.MethodPost, calls.EditKind.Path(), string(ledger.JSON(calls.EditKindIn{Name: "mail",
			Actor: "x", Have: ledger.JSON(have[0]), Want: want})))
		if r.StatusCode != tt.status {
			t.Errorf("%+v: %d %s", tt, r.StatusCode, r.text)
		}
	}
	now, err := s.l.Kind(t.Context(), "mail")
	if want := `[accounts=[{"password":"s3cret"}] list="look" password="s3cret"]`; err != nil || now.MaxFailures != 2 || now.Defaults.String() != want {
		t.Errorf("%d, %s, want %s, %v", now.MaxFailures, now.Defaults, want, err)
	}
}

// TestGuesses: the verdict about a known item does not confirm a guess about a field that the caller may not see.
func TestGuesses(t *testing.T) {
	s := newSite(t)
	secret := ledger.Input{Secret: []string{"password"}}
	must.OK(t, s.l.SetKind(t.Context(), "ann", ledger.Kind{Name: "mail", Input: secret}))
	must.OK(t, s.l.SetKind(t.Context(), "ann", ledger.Kind{Name: "page"}))
	for _, kind := range []string{"mail", "page"} {
		must.Do(t)(s.l.Add(t.Context(), ledger.NewItem{Kind: kind, Key: "k", Payload: []byte(`{"password":"s3cret"}`)}))
	}
	s.tokens["adds"] = s.token("adds", access.Add)
	for row, want := range map[string]string{
		`{"kind":"mail","key":"k","payload":{"password":"guess"}}`:                      "known",
		`{"kind":"mail","key":"k","payload":{"password":"guess"},"given":["password"]}`: "known",
		`{"kind":"page","key":"k","payload":{"password":"guess"},"given":["password"]}`: "known",
		`{"kind":"page","key":"k","payload":{"password":"guess"}}`:                      "differs",
	} {
		var out answer.Verdicts
		if s.do("adds", http.MethodPost, "/items", `[`+row+`]`).ok(&out); out.Items[0].Verdict != want {
			t.Errorf("%s: %+v, want %s", row, out.Items[0], want)
		}
	}
}

// TestActorOfOthers: an item that another program decides, or opens again, names the token in the journal.
func TestActorOfOthers(t *testing.T) {
	s := newSite(t)
	s.dead("mail", 2)
	s.tokens["ops"] = s.token("ops", access.Read, access.Payload, access.Operate, access.Add)
	act := func(in calls.ActIn) {
		in.Bulk = ledger.BulkActOf(t.Context())
		s.do("ops", http.MethodPost, calls.Act.Path(), string(ledger.JSON(in))).ok(new(calls.ActOut))
	}
	act(calls.ActIn{Act: calls.Decide, Filter: ledger.IDs(1), Agent: "operator:ann", Result: ledger.Done(nil)})
	act(calls.ActIn{Act: calls.DecideAll, Filter: ledger.IDs(2), Agent: "operator:ann", Result: ledger.Done(nil)})
	again := ledger.NewItem{Kind: "mail", Key: "1", Again: ledger.Again{DoneBefore: time.Now().Add(time.Hour)}}
	for _, bulk := range []*ledger.BulkAct{nil, ledger.BulkActOf(t.Context())} { // the other one is done then
		in := calls.AddIn{Items: []ledger.NewItem{again}, Bulk: bulk}
		s.do("ops", http.MethodPost, calls.Add.Path(), string(ledger.JSON(in))).ok(new(calls.AddOut))
		again.Key = "0"
	}
	entries, err := s.l.Journal(t.Context(), ledger.JournalQuery{Limit: 9})
	must.OK(t, err)
	actions := map[string]int{}
	for _, e := range entries {
		if strings.HasSuffix(e.Actor, "api:ops") {
			actions[e.Action]++
		}
	}
	if actions["decide"] != 2 || actions["reopen"] != 2 {
		t.Errorf("%v of %+v", actions, entries)
	}
}
