package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// kinds makes kinds of which items may be added.
func (s *site) kinds(names ...string) {
	s.t.Helper()
	for _, name := range names {
		must.OK(s.t, s.l.SetKind(s.t.Context(), "ann", ledger.Kind{Name: name}))
	}
}

// TestAdd: each item of a list has a verdict, also beside wrong ones, and adding twice adds once.
func TestAdd(t *testing.T) {
	s := newSite(t)
	s.kinds("page", "mail")
	body := `[{"kind":"page","key":"a","payload":{"n":1}},{"kind":"page","key":""},{"kind":"none","key":"x"},
		{"kind":"mail","key":"m","priority":9},{"kind":"page","key":"b","due":"2126-01-01T00:00:00Z"}]`
	for _, want := range []string{"added refused refused refused added", "known refused refused refused known"} {
		var got answer.Verdicts
		s.do("add", http.MethodPost, "/items", body).ok(&got)
		var verdicts []string
		for _, v := range got.Items {
			verdicts = append(verdicts, v.Verdict)
		}
		if strings.Join(verdicts, " ") != want || got.Counts["refused"] != 3 {
			t.Errorf("%+v, want %s", got, want)
		}
		if bad := got.Items[1]; bad.Code != "invalid" || bad.Field != "key" || got.Items[2].Code != "not_found" ||
			got.Items[3].Field != "priority" {
			t.Errorf("%+v", got.Items)
		}
	}
	// Keys that are not UTF-8 are the same one in JSON.
	var got answer.Verdicts
	s.do("add", http.MethodPost, "/items", `[{"kind":"page","key":"caf`+"\xe9"+`"},{"kind":"page","key":"caf\udce9"},`+
		`{"kind":"page","scope":"\ud800","key":"x"}]`).ok(&got)
	if got.Counts["refused"] != 3 || got.Items[1].Field != "key" || got.Items[1].Reason != "not valid UTF-8" {
		t.Errorf("%+v", got)
	}
	got = answer.Verdicts{}
	lines := strings.Repeat("{\"kind\":\"mail\",\"key\":\"x\"}\n", 2) + `{"kind":"page","key":"y"}`
	s.do("mail", http.MethodPost, "/items", lines, header("Content-Type", mediaLines)).ok(&got)
	if got.Counts["added"] != 1 || got.Counts["known"] != 1 || got.Items[2].Code != "scope" {
		t.Errorf("%+v", got)
	}
	it, err := s.l.Find(t.Context(), "page", "", "a")
	if err != nil || string(it.Payload) != `{"n":1}` {
		t.Errorf("%+v, %v", it, err)
	}
	for body, code := range map[string]string{"[]": "too_many_rows", "{}": "bad_request", "[{": "bad_request",
		`[{"kind":"page","key":"a","color":1}]`: "bad_request", `[{"kind":7}]`: "bad_request", "[] []": "bad_request",
		"[" + strings.Repeat(`{"kind":"page","key":"a"},`, 5000) + `{"kind":"page","key":"a"}]`: "too_many_rows"} {
		s.do("add", http.MethodPost, "/items", body).fails(codes[code].status, code)
	}
	s.do("add", http.MethodPost, "/items", "a=b", header("Content-Type", "application/x-www-form-urlencoded")).fails(
		http.StatusUnsupportedMediaType, "bad_media_type")
}

// TestKinds: a kind is changed only if it is still as the caller read it. Errors name the wrong field.
func TestKinds(t *testing.T) {
	s := newSite(t)
	s.kinds("page", "mail")
	var list answer.List[answer.Kind]
	if s.do("mail", http.MethodGet, "/kinds", "").ok(&list); len(list.Items) != 1 || list.Items[0].Kind != "mail" {
		t.Errorf("%+v", list)
	}
	var k answer.Kind
	tag := s.do("read", http.MethodGet, "/kinds/page", "").ok(&k).Header.Get("ETag")
	change := `{"max_failures":3,"rate":"5/s","burst":2,"timeout_s":90,"keep_forever":true,"on_lost":"doubt"}`
	s.do("operate", http.MethodPatch, "/kinds/page", change, header("If-Match", "W/"+tag)).ok(&k) // of a proxy
	if k.MaxFailures != 3 || k.Rate != "5/s" || k.Burst != 2 || k.Timeout != 90 || k.Keep != nil || k.OnLost != "doubt" {
		t.Errorf("%+v", k)
	}
	s.do("operate", http.MethodPatch, "/kinds/page", change, header("If-Match", tag)).fails(
		http.StatusPreconditionFailed, "changed")
	s.do("operate", http.MethodPatch, "/kinds/page", change).fails(http.StatusPreconditionRequired, "no_condition")
	for change, field := range map[string]string{`{"max_failures":-1}`: "max_failures", `{"rate":"fast"}`: "rate",
		`{"timeout_s":-1}`: "timeout_s", `{"on_lost":"x"}`: "on_lost"} {
		p := s.do("operate", http.MethodPatch, "/kinds/page", change, header("If-Match", "*")).fails(
			http.StatusUnprocessableEntity, "invalid")
		if p.Field != field {
			t.Errorf("%s: %+v", change, p)
		}
	}
	s.do("operate", http.MethodPut, "/kinds/page/paused", `{"paused":true,"reason":"disk full"}`).ok(&k)
	if !k.Paused {
		t.Errorf("%+v", k)
	}
	var journal answer.List[answer.Journal]
	s.do("read", http.MethodGet, "/journal?limit=1", "").ok(&journal)
	if e := journal.Items[0]; e.Action != "pause" || e.Actor != "api:operate" || e.Detail != "disk full" {
		t.Errorf("%+v", e)
	}
	s.do("read", http.MethodGet, "/journal?limit=1&cursor="+journal.Cursor(), "").ok(&journal)
	if journal.Items[0].Action != "set-kind" {
		t.Errorf("%+v", journal)
	}
	for _, path := range []string{"/kinds/none", "/kinds/A%20b"} {
		s.do("operate", http.MethodPatch, path, "{}", header("If-Match", "*")).fails(http.StatusNotFound, "not_found")
		s.do("read", http.MethodGet, path, "").fails(http.StatusNotFound, "not_found")
	}
	s.do("mail", http.MethodPut, "/kinds/page/paused", `{"paused":false}`).fails(http.StatusNotFound, "not_found")
}

// TestRounds: each round of a recurring item that was closed is listed with how it was left, the latest first. Items
// that are not recurring have none.
func TestRounds(t *testing.T) {
	s := newSite(t)
	s.kinds("page", "mail")
	must.Do(t)(s.l.Add(t.Context(), ledger.NewItem{Kind: "page", Key: "daily", Every: "24h"},
		ledger.NewItem{Kind: "page", Key: "hourly", Every: "1h"}))
	s.add("mail", "once")
	s.end("page", ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: "gone"})
	s.end("mail", ledger.Result{Outcome: ledger.OutcomeDone})
	var rounds answer.List[answer.Round]
	s.do("read", http.MethodGet, "/rounds", "").ok(&rounds)
	if len(rounds.Items) != 1 {
		t.Fatalf("%+v", rounds)
	}
	r := rounds.Items[0]
	if r.State != ledger.RoundFailed || r.Code != "gone" || time.Time(r.Period).IsZero() || r.Round == "" ||
		r.Every == "" {
		t.Errorf("%+v", r)
	}
	if n, err := s.l.Retry(t.Context(), "ann", ledger.IDs(r.Item)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s.end("page", ledger.Result{Outcome: ledger.OutcomeDone})
	s.end("page", ledger.Result{Outcome: ledger.OutcomeDone})
	var states []ledger.RoundState
	for next := ""; ; next = rounds.Cursor() {
		s.do("read", http.MethodGet, "/rounds?limit=1&where=kind:page&cursor="+next, "").ok(&rounds)
		for _, r := range rounds.Items {
			states = append(states, r.State)
		}
		if rounds.Next == nil {
			break
		}
	}
	if fmt.Sprint(states) != "[done done failed]" {
		t.Errorf("%v", states)
	}
	for query, n := range map[string]int{"from=1h": 3, "to=1h": 0, "where=kind:mail": 0,
		"where=code:gone": 1} {
		if s.do("read", http.MethodGet, "/rounds?"+query, "").ok(&rounds); len(rounds.Items) != n {
			t.Errorf("%s: %d rounds, want %d: %+v", query, len(rounds.Items), n, rounds)
		}
	}
	s.do("read", http.MethodGet, "/rounds?from=yesterday", "").fails(http.StatusBadRequest, "bad_request")
	s.do("read", http.MethodGet, "/rounds?where=kind", "").fails(http.StatusBadRequest, "bad_filter")
	s.do("mail", http.MethodGet, "/rounds", "").ok(&rounds)
	if len(rounds.Items) != 0 {
		t.Errorf("rounds of another kind are shown: %+v", rounds)
	}
}

// TestFigures reads the counts and the lists that are not of items.
func TestFigures(t *testing.T) {
	s := newSite(t)
	s.kinds("page", "mail")
	s.add("page", "a", "b", "c", "d")
	for _, code := range []string{"http_404", "http_404", "dns"} {
		s.end("page", ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: code, Error: code + " it failed"})
	}
	held, err := s.l.Claim(t.Context(), ledger.Claim{Kind: "page", Agent: "bob", Limit: 1})
	if err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	must.OK(t, s.l.AddTallies(t.Context(), stats.Minute{At: time.Now(), Kind: "page", Agent: "w", Failed: 3}))
	var got answer.Stats
	s.do("read", http.MethodGet, "/stats", "").ok(&got)
	if len(got.Kinds) != 2 || got.Kinds[1].Dead != 3 || got.Kinds[1].Leased != 1 {
		t.Errorf("%+v", got)
	}
	if len(got.Minutes) == 0 || got.Minutes[0].Kind != "page" || got.Minutes[0].Failed != 3 {
		t.Errorf("%+v", got.Minutes)
	}
	if s.do("mail", http.MethodGet, "/stats", "").ok(&got); len(got.Kinds) != 1 || got.Kinds[0].Kind != "mail" ||
		len(got.Minutes) != 0 {
		t.Errorf("another kind is counted: %+v", got)
	}
	var causes answer.Causes
	s.do("read", http.MethodGet, "/causes", "").ok(&causes)
	if len(causes.Items) != 2 || causes.Items[0].Code != "http_404" || causes.Items[0].Count != 2 || !causes.Whole {
		t.Errorf("%+v", causes)
	}
	var sum int64
	for _, n := range causes.Items[0].Trend {
		sum += n
	}
	if span := time.Time(causes.To).Sub(time.Time(causes.From)); len(causes.Items[0].Trend) != 24 || sum != 2 ||
		span != answer.FailingWindow || time.Time(causes.To).Before(time.Now()) {
		t.Errorf("the trend of %v is %v", span, causes.Items[0].Trend)
	}
	causes = answer.Causes{}
	s.do("read", http.MethodGet, "/causes?where=since:2d%20until:1d", "").ok(&causes)
	if ends := time.Until(time.Time(causes.To)); ends > -22*time.Hour {
		t.Errorf("the time of the trends ends after until: %v", ends)
	}
	causes = answer.Causes{}
	s.do("read", http.MethodGet, "/causes?where=until:2030-01-01", "").ok(&causes)
	if len(causes.Items) != 2 || len(causes.Items[0].Trend) != 0 || !time.Time(causes.From).IsZero() {
		t.Errorf("there is a trend of a time without a beginning: %+v", causes)
	}
	var n answer.Count
	if s.do("read", http.MethodGet, "/items/count?where=state:dead", "").ok(&n); n.Count != 3 || !n.Whole {
		t.Errorf("%+v are dead", n)
	}
	if s.do("mail", http.MethodGet, "/items/count?where=state:dead", "").ok(&n); n.Count != 0 {
		t.Errorf("%+v of another kind are counted", n)
	}
	s.do("read", http.MethodGet, "/items/count?where=kind", "").fails(http.StatusBadRequest, "bad_filter")
	s.do("read", http.MethodGet, "/causes?where=kind", "").fails(http.StatusBadRequest, "bad_filter")
	var leases answer.List[answer.Lease]
	s.do("read", http.MethodGet, "/leases", "").ok(&leases)
	if len(leases.Items) != 1 || leases.Items[0].Agent != "bob" || leases.Items[0].Outcome != "" {
		t.Errorf("%+v", leases)
	}
	var ended []string
	for next := ""; ; next = leases.Cursor() {
		s.do("read", http.MethodGet, "/leases?from=2h&limit=2&cursor="+next, "").ok(&leases)
		for _, l := range leases.Items {
			ended = append(ended, l.Code)
		}
		if leases.Next == nil {
			break
		}
	}
	if fmt.Sprint(ended) != "[dns http_404 http_404]" {
		t.Errorf("%v", ended)
	}
	s.do("read", http.MethodGet, "/leases?from=yesterday", "").fails(http.StatusBadRequest, "bad_request")
	var agents answer.List[answer.Agent]
	s.do("read", http.MethodGet, "/agents", "").ok(&agents)
	if len(agents.Items) != 1 || agents.Items[0].Agent != "bob" || agents.Items[0].Held != 1 {
		t.Errorf("%+v", agents)
	}
	if err := s.l.Beat(t.Context(), ledger.Agent{Name: "box"}, time.Minute); err != nil { // it works no kinds yet
		t.Fatal(err)
	}
	if got := s.do("read", http.MethodGet, "/agents", "").ok(&agents); strings.Contains(string(got.text), `"kinds":null`) {
		t.Errorf("a list that is empty: %s", got.text)
	}
	ctx, lock, err := locks.New(s.l).Acquire(t.Context(), "nightly", locks.Options{Holder: "bob", TTL: time.Minute})
	must.OK(t, err)
	var list answer.List[answer.Lock]
	if s.do("read", http.MethodGet, "/locks", "").ok(&list); len(list.Items) != 1 || list.Items[0].Holder != "bob" {
		t.Errorf("%+v", list)
	}
	must.OK(t, locks.New(s.l).Release(ctx, lock))
}

// TestPaced: an expensive value is read at most a twentieth of the time, by one caller at a time. Other callers get the
// old value, unless it is outdated. After a failure the value is read again soon.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, took := 0, 3*time.Second
		var failed error
		p := paced[int]{read: func(ctx context.Context) (int, error) {
			select {
			case <-time.After(took):
				reads++
				return reads, failed
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}}
		is := func(want int) {
			t.Helper()
			if got, err := p.get(t.Context(), true); got != want || err != nil {
				t.Errorf("%d after %d reads, want %d, %v", got, reads, want, err)
			}
		}
		is(1)
		is(1)
		<-time.After(59 * time.Second)
		is(1)
		<-time.After(time.Second)
		is(1) // it is read now: that takes longer than get waits
		<-time.After(took)
		is(2)
		<-time.After(time.Minute)
		failed = ledger.ErrUnavailable
		is(2)
		<-time.After(took)
		if _, err := p.get(t.Context(), true); !errors.Is(err, failed) {
			t.Errorf("a reading has failed: %v", err)
		}
		failed = nil
		<-time.After(failedPause)
		_, _ = p.get(t.Context(), true) // it is read now
		<-time.After(took)
		is(4)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := paced[int]{read: p.read}
		if _, err := q.get(short, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("there is no value yet: %v", err)
		}
		if got, err := q.get(t.Context(), false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v instead of an answer at once", got, err)
		}
		<-time.After(took)
		synctest.Wait()
		if got, err := q.get(t.Context(), false); got != reads || err != nil {
			t.Errorf("%d, %v, want %d", got, err, reads)
		}
		took = time.Second
		<-time.After(time.Hour)
		is(reads + 1) // an outdated value is read again before it is an answer
		<-time.After(time.Hour)
		took = 10 * time.Second
		late := func() (int, error) {
			short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return p.get(short, true)
		}
		old := reads
		if got, err := late(); got != old || err != nil { // unless the caller cannot wait
			t.Errorf("%d, %v, want the outdated value %d", got, err, old)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		failed = ledger.ErrUnavailable
		_, _ = late() // it is read now
		<-time.After(time.Hour)
		if _, err := late(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: an old failure is an answer", err)
		}
		<-time.After(took)
		synctest.Wait()
		failed = nil
		took = 2 * paceTime
		<-time.After(time.Hour)
		if got, err := p.get(t.Context(), false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v instead of an answer at once", got, err)
		}
		<-time.After(took)
		if got, err := p.get(t.Context(), false); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v after a reading that took too long", got, err)
		}
		<-time.After(took)
		synctest.Wait()
	})
}
