package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
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
	s.do("mails", http.MethodPost, "/leases/finish", end("push")).fails(http.StatusForbidden, "scope")
	if n, err := s.l.Count(t.Context(), ledger.Filter{Kinds: []string{"push"}}); n != 0 || err != nil {
		t.Errorf("%d items of another kind, %v", n, err)
	}
	if a := s.answers("mails", "finish", end("mail"))[0]; !a.Recorded {
		t.Errorf("%+v", a)
	}
}

// TestCallsOfOthers: what other programs send as they like reveals and uncovers no more than the API does.
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
