package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

func TestItems(t *testing.T) {
	s := newSite(t)
	var keys []string
	for i := range 25 {
		keys = append(keys, fmt.Sprintf("item-%02d", i))
	}
	ids := s.add("page", keys...)
	for _, order := range []string{"id", "-id"} {
		var got []int64
		parts := 0
		for next := ""; ; parts++ {
			var list answer.List[answer.Item]
			r := s.do("read", http.MethodGet, "/items?limit=10&order="+order+"&where=kind:page&cursor="+next, "").ok(&list)
			for _, it := range list.Items {
				got = append(got, it.ID)
			}
			if list.Next == nil {
				break
			}
			next = *list.Next
			if link := r.Header.Get("Link"); !strings.Contains(link, "cursor="+next) || !strings.Contains(link, `rel="next"`) {
				t.Errorf("Link: %s", link)
			}
		}
		want := slices.Clone(ids)
		if order == "-id" {
			slices.Reverse(want)
		}
		if !slices.Equal(got, want) || parts != 2 {
			t.Errorf("by %s: %v in %d parts", order, got, parts+1)
		}
	}
	lines := s.do("read", http.MethodGet, "/items?limit=3", "", header("Accept", mediaLines))
	if n := bytes.Count(lines.text, []byte("\n")); n != 3 || lines.Header.Get("Content-Type") != mediaLines ||
		lines.Header.Get("Link") == "" {
		t.Errorf("%d lines: %s", n, lines.text)
	}
}

// TestEndedOrder: failures come newest first, from part to part.
func TestEndedOrder(t *testing.T) {
	s := newSite(t)
	s.add("page", "a", "b", "c")
	for range 3 {
		s.end("page", ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: "http_404", Error: "gone"})
	}
	var got []string
	next := ""
	for range 4 {
		var list answer.List[answer.Item]
		s.do("read", http.MethodGet, "/items?limit=1&order=-ended&where=state:dead&cursor="+next, "").ok(&list)
		for _, it := range list.Items {
			got = append(got, it.Key)
		}
		if list.Next == nil {
			break
		}
		next = *list.Next
	}
	if !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("%v", got)
	}
}

// TestMistakesOfProgrammers: the answers to common mistakes tell how to do it right.
func TestMistakesOfProgrammers(t *testing.T) {
	s := newSite(t)
	p := s.do("", http.MethodGet, "/items", "").fails(http.StatusUnauthorized, "unauthorized")
	if !strings.HasSuffix(p.Hint, "the header Authorization, after the word Bearer") {
		t.Errorf("no token: %+v", p)
	}
	for body, want := range map[string]string{
		`{"kind":"page","key":"a"}`:   "the body must be a list, [{…}], and not object",
		`[{"kind":7}]`:                "kind must not be number",
		`[{"due":"tomorrow"}]`:        "due must not be other than a time such as",
		`[{"kind":"page","keys":""}]`: "there is no field",
	} {
		p := s.do("add", http.MethodPost, "/items", body).fails(http.StatusBadRequest, "bad_request")
		if field, _, ok := strings.Cut(want, " must not be "); !strings.Contains(p.Detail, want) || p.Hint == "" ||
			ok && p.Field != field {
			t.Errorf("%s: %+v", body, p)
		}
	}
}

func TestBadFiltersAndCursors(t *testing.T) {
	s := newSite(t)
	s.add("page", "a", "b")
	p := s.do("read", http.MethodGet, "/items?where="+url.QueryEscape("kind:page stat:dead"), "").fails(
		http.StatusBadRequest, "bad_filter")
	if p.Column != 11 || p.Length != 9 || p.Hint != "did you mean state:?" {
		t.Errorf("%+v", p)
	}
	var list answer.List[answer.Item]
	s.do("read", http.MethodGet, "/items?limit=1", "").ok(&list)
	for _, query := range []string{"cursor=x", "cursor=%00", "cursor=bnVsbA", "limit=1&order=-id&cursor=" + *list.Next,
		"where=kind:page&cursor=" + *list.Next, "cursor=" + (*list.Next)[1:]} {
		s.do("read", http.MethodGet, "/items?"+query, "").fails(http.StatusBadRequest, "bad_cursor")
	}
	s.do("read", http.MethodGet, "/items/1/attempts?cursor="+*list.Next, "").fails(http.StatusBadRequest, "bad_cursor")
}

// TestItem reads an item in all ways, and neither payload, output and log without the scope nor items of other kinds.
func TestItem(t *testing.T) {
	s := newSite(t)
	id := s.add("page", "a")[0]
	for range 3 {
		s.end("page", ledger.Result{Outcome: ledger.OutcomeFailed, Code: "http_503", Error: "busy", Log: "hello",
			Output: []byte(`{"n":1}`)})
		must.Do(t)(s.l.Retry(t.Context(), "ann", ledger.IDs(id)))
	}
	path := fmt.Sprintf("/items/%d", id)
	var it answer.ItemDetail
	s.do("all", http.MethodGet, path, "").ok(&it)
	if it.Key != "a" || string(it.Payload) != `{"secret":"a"}` {
		t.Errorf("%+v", it)
	}
	var why answer.Why
	if s.do("read", http.MethodGet, path+"/why", "").ok(&why); why.Code != "no_worker" || why.ID != id {
		t.Errorf("%+v", why)
	}
	var attempts answer.List[answer.Attempt]
	s.do("all", http.MethodGet, path+"/attempts?limit=2", "").ok(&attempts)
	if len(attempts.Items) != 2 || attempts.Items[0].Attempt != 3 || attempts.Items[0].Log != "hello" {
		t.Errorf("%+v", attempts)
	}
	s.do("all", http.MethodGet, path+"/attempts?limit=2&cursor="+attempts.Cursor(), "").ok(&attempts)
	if len(attempts.Items) != 1 || attempts.Items[0].Attempt != 1 || attempts.Next != nil {
		t.Errorf("%+v", attempts)
	}
	out := s.do("payload", http.MethodGet, path+"/attempts/2/output", "")
	if string(out.text) != `{"n":1}` || !strings.HasPrefix(out.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("%v %s", out.Header, out.text)
	}
	for _, none := range []string{"/items/99", "/items/99/why", "/items/99/attempts", path + "/attempts/9/output"} {
		s.do("all", http.MethodGet, none, "").fails(http.StatusNotFound, "not_found")
	}
	for _, p := range []string{path, path + "/attempts", "/items?output=true"} {
		if r := s.do("read", http.MethodGet, p, ""); strings.Contains(string(r.text), "secret") ||
			strings.Contains(string(r.text), "hello") || strings.Contains(string(r.text), `"n"`) {
			t.Errorf("without the scope payload %s shows %s", p, r.text)
		}
	}
	s.do("read", http.MethodGet, "/items?where=payload.secret:a", "").fails(http.StatusForbidden, "scope")
	for _, p := range []string{path, path + "/why", path + "/attempts", path + "/attempts/2/output"} {
		s.do("mail", http.MethodGet, p, "").fails(http.StatusNotFound, "not_found") // it is of another kind
	}
	var list answer.List[answer.Item]
	if s.do("mail", http.MethodGet, "/items", "").ok(&list); len(list.Items) != 0 {
		t.Errorf("another kind is listed: %+v", list)
	}
}

// FuzzCursor: no text as a cursor makes the server fail.
func FuzzCursor(f *testing.F) {
	f.Add("", "")
	f.Add("e30", "state:dead")
	f.Add(cursor{List: digest("/items", "", "id"), ID: 7}.after(ledger.Mark{ItemID: -1}), "")
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	items := []ledger.NewItem{{Kind: "page", Key: "a"}, {Kind: "page", Key: "b"}}
	must.Do(f)(l.Add(f.Context(), items...))
	a := New(Config{Ledger: l, Guard: access.NewGuard(address, nil, nil, true), Log: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, text, where string) {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+Base+"/items?cursor="+
			url.QueryEscape(text)+"&where="+url.QueryEscape(where), nil))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
