package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// claim claims over HTTP, and expects that many; −1: any number.
func (s *site) claim(token, body string, n int) []lent {
	s.t.Helper()
	var got struct{ Leases []lent }
	s.do(token, http.MethodPost, "/claims", body).ok(&got)
	if n >= 0 && len(got.Leases) != n {
		s.t.Fatalf("%s: %d leases, want %d", body, len(got.Leases), n)
	}
	return got.Leases
}

// lent is an item as a client reads it.
type lent struct {
	Token   string
	ID      int64
	Payload json.RawMessage
	Resumed bool
}

// answers are those of a call about leases.
func (s *site) answers(token, path, body string) []answered {
	s.t.Helper()
	var got struct{ Answers []answered }
	s.do(token, http.MethodPost, "/leases/"+path, body).ok(&got)
	return got.Answers
}

type answered struct {
	Token, Reason, Message, Holder, Outcome, State string
	Recorded, Cancel                               bool
}

func endings(tokens ...string) string {
	var list []string
	for _, token := range tokens {
		list = append(list, fmt.Sprintf(`{"token":%q,"output":{"n":1}}`, token))
	}
	return `{"endings":[` + strings.Join(list, ",") + `]}`
}

// TestLeases: items are claimed, renewed and ended over HTTP. A list has an answer for each token; the refusal of a
// single one is the status. An agent that is asked to end learns it from either call.
func TestLeases(t *testing.T) {
	s := newSite(t)
	ids := s.add("mail", "a", "b", "c")
	got := s.claim("work", `{"kind":"mail","agent":"box-1","limit":2,"lease_s":1}`, 2)
	if got[0].ID != ids[0] || string(got[0].Payload) != `{"secret":"a"}` {
		t.Errorf("%+v", got[0])
	}
	tokens, _ := json.Marshal(map[string]any{"tokens": []string{got[0].Token, got[1].Token}, "lease_s": 60})
	for _, path := range []string{"renew", "start"} {
		for _, a := range s.answers("work", path, string(tokens)) {
			if !a.Recorded {
				t.Errorf("%s: %+v", path, a)
			}
		}
	}
	for _, c := range [][3]string{{"operate", "/agents/drain", `{"agent":"box-1"}`}, {"work", "/leases/renew", string(tokens)},
		{"work", "/claims", `{"kind":"mail","agent":"box-1","wait_s":30}`}} {
		var told struct{ Drain bool }
		if s.do(c[0], http.MethodPost, c[1], c[2]).ok(&told); !told.Drain {
			t.Errorf("%s: nothing tells the agent that it is to end", c[1])
		}
	}
	if a := s.answers("work", "finish", endings(got[0].Token))[0]; !a.Recorded || a.State+a.Outcome != "donedone" {
		t.Errorf("%+v", a)
	}
	must.Do(t)(s.l.ForceRelease(t.Context(), "ann", ledger.IDs(ids[1])))
	s.claim("work", `{"kind":"mail","agent":"box-2"}`, 1)
	p := s.do("work", http.MethodPost, "/leases/finish", endings(got[1].Token)).fails(http.StatusConflict, "lease_lost")
	if !strings.Contains(p.Detail, "box-2") || p.Hint == "" {
		t.Errorf("who has the item: %+v", p)
	}
	both := s.answers("work", "finish", endings(got[1].Token, got[0].Token))
	if both[0].Recorded || both[0].Reason != "lease_lost" || both[0].Holder != "box-2" || !both[1].Recorded {
		t.Errorf("%+v", both)
	}
	for _, tokens := range []string{`[]`, `["17.3"]`} {
		s.do("work", http.MethodPost, "/leases/release", `{"tokens":`+tokens+`}`).fails(http.StatusUnprocessableEntity,
			"invalid")
	}
	s.do("work", http.MethodPost, "/leases/release", `{"token":"17.3"}`).fails(http.StatusBadRequest, "bad_request")
	s.do("work", http.MethodPost, "/claims", `{"kind":"none","agent":"w"}`).fails(http.StatusNotFound, "not_found")
	for _, body := range []string{`{"kind":"mail"}`, `{"kind":"mail","agent":"w","wait_s":31}`} {
		s.do("work", http.MethodPost, "/claims", body).fails(http.StatusUnprocessableEntity, "invalid")
	}
}

// TestLeasesOfOthers: a token works its kinds only, and under names that begin as it asks.
func TestLeasesOfOthers(t *testing.T) {
	s := newSite(t)
	s.add("mail", "a")
	s.add("push", "b")
	s.do("mail", http.MethodPost, "/claims", `{"kind":"push","agent":"box-1"}`).fails(http.StatusForbidden, "scope")
	s.do("mail", http.MethodPost, "/claims", `{"kind":"mail","agent":"van-1"}`).fails(http.StatusForbidden, "scope")
	s.do("mail", http.MethodPost, "/claims", `{"kind":"mail","agent":"box-1","items":[2]}`).fails(http.StatusNotFound,
		"not_found")
	foreign := []string{s.claim("work", `{"kind":"push","agent":"box-1"}`, 1)[0].Token,
		s.claim("work", `{"kind":"mail","agent":"van-1"}`, 1)[0].Token}
	s.do("mail", http.MethodPost, "/claims", `{"kind":"mail","agent":"box-1","items":[1]}`).fails(http.StatusConflict,
		"conflict")
	for _, token := range foreign {
		list := fmt.Sprintf(`{"tokens":[%q]}`, token)
		for path, body := range map[string]string{"renew": list, "start": list, "release": list, "finish": endings(token)} {
			p := s.do("mail", http.MethodPost, "/leases/"+path, body).fails(http.StatusForbidden, "scope")
			if p.Field != "token" {
				t.Errorf("%s: the field is %q", path, p.Field) // programs know by it that the refusal is about the lease
			}
		}
	}
	for _, a := range s.answers("mail", "finish", endings(foreign...)) {
		if a.Recorded || a.Reason != "scope" || a.Holder != "" {
			t.Errorf("%+v", a)
		}
	}
	for _, a := range s.answers("work", "finish", endings(foreign...)) {
		if !a.Recorded {
			t.Errorf("%+v", a)
		}
	}
}

// server is a site that is reached over the network, with claims that wait.
func (s *site) server() *httptest.Server {
	server := httptest.NewUnstartedServer(s.api)
	server.Config.ReadTimeout = 100 * time.Millisecond // far less than claims wait
	server.Start()
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.api.Run(ctx) })
	s.t.Cleanup(func() {
		end()
		running.Wait()
		server.Close()
	})
	return server
}

// post sends a request over the network.
func (s *site) post(ctx context.Context, server *httptest.Server, path, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+Base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+s.tokens["work"])
	r.Header.Set("Content-Type", mediaJSON)
	return server.Client().Do(r)
}

// TestWaitingClaim: a claim waits longer than the server waits for a request, and gets what comes meanwhile.
func TestWaitingClaim(t *testing.T) {
	s := newSite(t)
	s.add("mail", "a")
	s.claim("work", `{"kind":"mail","agent":"w"}`, 1)
	server := s.server()
	res, err := s.post(t.Context(), server, "/claims", `{"kind":"mail","agent":"w","wait_s":1}`)
	must.OK(t, err)
	var text bytes.Buffer
	_, err = text.ReadFrom(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(text.String(), `"leases":[]`) {
		t.Errorf("%d %s, %v", res.StatusCode, text.String(), err)
	}
	answers := make(chan string, 1)
	go func() {
		var text bytes.Buffer
		res, err := s.post(t.Context(), server, "/claims", `{"kind":"mail","agent":"w","wait_s":30}`)
		if err == nil {
			_, _ = text.ReadFrom(res.Body)
			res.Body.Close()
		}
		answers <- text.String()
	}()
	s.add("mail", "b")
	if got := <-answers; !strings.Contains(got, `"key":"b"`) {
		t.Errorf("got %s", got)
	}
}
