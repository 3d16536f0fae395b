package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/source"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, l *ledger.Ledger)) {
	open := map[string]func() (ledger.Store, error){
		"sqlite": func() (ledger.Store, error) {
			return sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), sqlite.Options{})
		},
		"postgres": func() (ledger.Store, error) {
			return postgres.Connect(t.Context(), pgtest.URL(t), postgres.Options{Schema: pgtest.Schema(t)})
		},
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			store, err := open()
			must.OK(t, err)
			l := ledger.New(store, ledger.Options{})
			defer l.Close()
			test(t, l)
		})
	}
}

// healthOf returns the Health of a daemon with two kinds and a source that fails.
func healthOf(l *ledger.Ledger, log io.Writer) *Health {
	state := State{Plugins: func() map[string]PluginState {
		return map[string]PluginState{"thumb": {Up: true, Restarts: 2}}
	},
		Sources: func() []source.Status {
			return []source.Status{{Name: "inbox", Error: "hunter2 is away"}}
		}, Busy: func() int64 { return 0 }}
	kinds := func() map[string]string { return map[string]string{"thumb": "", "mail": KindRestarting} }
	return &Health{Locks: locks.New(l), Agent: "me", Kinds: kinds, Log: slog.New(slog.NewTextHandler(log, nil)),
		Sources: state.Sources, Metrics: NewMetrics("1.2.3", l, state).Handler()}
}

func get(h *Health, path string) (int, string) {
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// TestReady: the daemon is ready while the ledger can be written to, and until Stop.
func TestReady(t *testing.T) {
	onBoth(t, func(t *testing.T, l *ledger.Ledger) {
		var log strings.Builder
		h := healthOf(l, &log)
		if code, body := get(h, "/readyz"); code != http.StatusOK || !strings.Contains(body, `"ready": true`) ||
			!strings.Contains(body, `"thumb": ""`) || !strings.Contains(body, `"mail": "restarting"`) ||
			!strings.Contains(body, `"error": "failing"`) || strings.Contains(body, "hunter2") {
			t.Errorf("%d %s", code, body)
		}
		if held, err := h.Locks.Held(t.Context()); err != nil || len(held) > 0 {
			t.Errorf("left behind: %v, %v", held, err)
		}
		h.Stop()
		if code, body := get(h, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
			t.Errorf("%d %s", code, body)
		}
		h = healthOf(l, &log)
		h.Agent = strings.Repeat("a", bounds.MaxAgent)
		if code, body := get(h, "/readyz"); code != http.StatusOK {
			t.Errorf("with a long name: %d %s", code, body)
		}
		h = healthOf(l, &log)
		must.OK(t, l.Close())
		if code, body := get(h, "/readyz"); code != http.StatusServiceUnavailable ||
			!strings.Contains(body, `"problem": "ledger_unwritable"`) ||
			!strings.Contains(log.String(), "nothing can be written to the ledger") {
			t.Errorf("%d %s %s", code, body, log.String())
		}
		if code, body := get(h, "/livez"); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%d %s", code, body)
		}
		if code, body := get(h, "/metrics"); code != http.StatusOK || !strings.Contains(body, "ledger_up 0\n") {
			t.Errorf("%d %s", code, body)
		}
	})
}

// TestMetrics: metrics have the right values, and no label has a key, a code or an error of an item.
func TestMetrics(t *testing.T) {
	onBoth(t, func(t *testing.T, l *ledger.Ledger) {
		m := NewMetrics("1.2.3", l, State{Plugins: func() map[string]PluginState {
			return map[string]PluginState{"thumb": {Restarts: 2, RSS: 5}}
		},
			Sources: func() []source.Status {
				good := time.Unix(1_774_742_400, 0)
				return []source.Status{{Name: "inbox", Looking: true, Wrong: 3, Young: 2, Good: good, Next: good},
					{Name: "lost", Wrong: 3}}
			}, Busy: func() int64 { return 7 }})
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "thumb", Key: "secret key"}))
		lease := &ledger.Lease{Item: ledger.Item{Kind: "thumb", Key: "secret key"}}
		m.Attempt(worker.Event{Lease: lease, Recorded: ledger.OutcomeFailed, State: ledger.StateWaiting, Worked: time.Second,
			Result: ledger.Result{Code: "secret"}})
		m.Attempt(worker.Event{Lease: lease, Err: ledger.ErrLeaseLost})
		m.Attempt(worker.Event{Lease: lease, Err: ledger.ErrUnavailable})
		m.Look(source.Look{Source: "inbox", Found: 3, Verdicts: map[ledger.Verdict]int64{ledger.VerdictAdded: 3},
			Finished: 1})
		m.Look(source.Look{Source: "inbox", Err: errors.New("secret")})
		m.Claimed("thumb", 0, 3*time.Millisecond)
		m.Expired(4)
		_, body := get(&Health{Metrics: m.Handler()}, "/metrics")
		for _, want := range []string{
			`ledger_build_info{version="1.2.3"} 1`,
			`ledger_items{kind="thumb",state="ready"} 1`,
			`ledger_transitions_total{kind="thumb",outcome="failed",to="waiting"} 1`,
			`ledger_fenced_writes_total{kind="thumb"} 1`,
			`ledger_unrecorded_results_total{kind="thumb"} 1`,
			`ledger_process_seconds_count{kind="thumb"} 1`,
			`ledger_plugin_up{kind="thumb"} 0`,
			`ledger_plugin_restarts_total{kind="thumb"} 2`,
			`ledger_source_items_total{source="inbox",verdict="added"} 3`,
			`ledger_source_looks_total{result="error",source="inbox"} 1`,
			`ledger_source_up{source="inbox"} 1`,
			`ledger_source_wrong_files{source="inbox"} 3`,
			`ledger_source_young_files{source="inbox"} 2`,
			`ledger_source_last_success_timestamp_seconds{source="inbox"} 1.7747424e+09`,
			`ledger_source_next_look_timestamp_seconds{source="inbox"} 1.7747424e+09`,
			`ledger_up 1`,
			`ledger_claim_seconds_bucket{kind="thumb",le="0.005"} 1`,
			`ledger_leases_expired_total 4`,
			`ledger_db_busy_total 7`,
		} {
			if !strings.Contains(body, want+"\n") {
				t.Errorf("missing: %s", want)
			}
		}
		if strings.Contains(body, `files{source="lost"}`) || strings.Contains(body, `seconds{source="lost"}`) {
			t.Error("another daemon looks at this source")
		}
		if strings.Contains(body, "secret") {
			t.Error("what belongs to an item is in a metric")
		}
		metricsAreDocumented(t, m)
	})
}

// metricsAreDocumented compares the metrics, their types and their labels with the table of docs/operations.md.
func metricsAreDocumented(t *testing.T, m *Metrics) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	must.OK(t, err)
	families, err := m.registry.Gather()
	must.OK(t, err)
	var want, rows []string
	for _, f := range families {
		var labels []string
		for _, label := range f.Metric[0].Label {
			labels = append(labels, label.GetName())
		}
		if strings.HasPrefix(f.GetName(), "ledger_") {
			want = append(want, f.GetName()+" "+strings.ToLower(f.GetType().String())+" "+strings.Join(labels, ", "))
		}
	}
	row := regexp.MustCompile("(?m)^\\| `(ledger_\\w+)` \\| (\\w+) \\| ([\\w, ]*) \\|")
	for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
		rows = append(rows, strings.Join(cells[1:], " "))
	}
	slices.Sort(rows)
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("the table of metrics differs (- is missing, + is too much):\n%s", diff)
	}
}

// TestOldestReady: how long an item has been due does not depend on the clock of the daemon.
func TestOldestReady(t *testing.T) {
	behind := func() time.Time { return time.Now().Add(-time.Hour) }
	l := ledger.New(memory.New(memory.Options{Now: behind}), ledger.Options{})
	defer l.Close()
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "thumb", Key: "a"}))
	_, body := get(healthOf(l, io.Discard), "/metrics")
	value := regexp.MustCompile(`(?m)^ledger_oldest_ready_age_seconds\{kind="thumb"\} (\S+)`).FindStringSubmatch(body)
	if len(value) != 2 {
		t.Fatal(body)
	}
	if s, err := strconv.ParseFloat(value[1], 64); err != nil || s > 1800 {
		t.Errorf("%s seconds, of an item that was just added", value[1])
	}
}

// TestRounds: for a kind whose items recur, the page counts the items whose current round is open, done or failed
// for good; all of them wait.
func TestRounds(t *testing.T) {
	onBoth(t, func(t *testing.T, l *ledger.Ledger) {
		var items []ledger.NewItem
		for _, key := range []string{"done 1", "done 2", "done 3", "fails 1", "fails 2", "comes again", "left"} {
			items = append(items, ledger.NewItem{Kind: "check", Key: key, Every: "30d"})
		}
		must.Do(t)(l.Add(t.Context(), items...))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "check", Agent: "me", Limit: 6})
		if err != nil || len(leases) != 6 {
			t.Fatalf("%d leases, %v", len(leases), err)
		}
		for _, lease := range leases {
			result := ledger.Done(nil)
			switch {
			case strings.HasPrefix(lease.Key, "fails"):
				result = ledger.Permanent(errors.New("no"))
			case lease.Key == "comes again":
				result = ledger.RetryAfter(time.Hour, errors.New("not yet"))
			}
			must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: lease, Result: result})[0])
		}
		h := healthOf(l, io.Discard)
		get(h, "/metrics")
		_, body := get(h, "/metrics")
		for _, want := range []string{
			`ledger_transitions_total{kind="check",outcome="failed",to="dead"} 0`, `ledger_transitions_total{kind="check",outcome="unknown",to="doubt"} 0`,
			`ledger_rounds{kind="check",state="done"} 3`, `ledger_rounds{kind="check",state="failed"} 2`, `ledger_rounds{kind="check",state="open"} 2`,
			`ledger_kind_paused{kind="check"} 0`, `ledger_items{kind="check",state="waiting"} 6`, `ledger_items{kind="check",state="dead"} 0`,
		} {
			if !strings.Contains(body, want+"\n") {
				t.Errorf("missing: %s\n%s", want, regexp.MustCompile(`(?m)^ledger_(rounds|items).*$`).FindAllString(body, -1))
			}
		}
	})
}

// TestAway: a ledger that did not answer in time is asked again at the next scrape after askEvery.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memory.New(memory.Options{})}
		h := healthOf(ledger.New(store, ledger.Options{}), io.Discard)
		store.hangs = true
		for _, want := range []string{"ledger_up 0", "ledger_up 1"} {
			_, body := get(h, "/metrics")
			if counted := strings.Contains(body, "\nledger_counts_age_seconds "); !strings.Contains(body, want+"\n") ||
				counted != strings.HasSuffix(want, "1") {
				t.Errorf("want %s\n%s", want, body)
			}
			store.hangs = false
			time.Sleep(6 * time.Second)
		}
	})
}

// TestSlowCounts: a backlog that takes long to count leaves the ledger up. It is counted in the background, for a
// twentieth of the time, and the counts from before stay until there are newer ones.
func TestSlowCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memory.New(memory.Options{})}
		l := ledger.New(store, ledger.Options{})
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "thumb", Key: "a"}))
		m := NewMetrics("1", l, State{Plugins: func() map[string]PluginState { return nil }, Sources: func() []source.Status {
			return nil
		}, Busy: func() int64 { return 0 }})
		scrape := func(pause time.Duration, counts int64, want ...string) {
			t.Helper()
			time.Sleep(pause)
			_, body := get(&Health{Metrics: m.Handler()}, "/metrics")
			for _, line := range append(want, "ledger_up 1") {
				if !strings.Contains(body, line+"\n") {
					t.Errorf("missing: %s\n%s", line, body)
				}
			}
			if has := strings.Contains(body, "\nledger_items{"); has != (len(want) > 0) || store.counts.Load() != counts {
				t.Errorf("items %t, %d counts, want %d", has, store.counts.Load(), counts)
			}
		}
		store.countTime = 20 * time.Second
		scrape(0, 1) // takes 5 s
		scrape(10*time.Second, 1)
		scrape(10*time.Second, 1, `ledger_items{kind="thumb",state="ready"} 1`, "ledger_counts_age_seconds 25")
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "thumb", Key: "b"}))
		scrape(390*time.Second, 1, "ledger_counts_age_seconds 415", `ledger_oldest_ready_age_seconds{kind="thumb"} 0`)
		store.countTime = 0
		scrape(10*time.Second, 2, `ledger_items{kind="thumb",state="ready"} 2`, "ledger_counts_age_seconds 0")
		store.countTime = time.Hour // it is given up after a minute
		scrape(10*time.Second, 3, `ledger_items{kind="thumb",state="ready"} 2`, "ledger_counts_age_seconds 15")
		scrape(20*time.Minute, 3, `ledger_items{kind="thumb",state="ready"} 2`, "ledger_counts_age_seconds 1215")
		scrape(time.Minute, 4, `ledger_items{kind="thumb",state="ready"} 2`)
		began := time.Now()
		m.Close()
		if took := time.Since(began); took > 0 {
			t.Errorf("closed after %s", took)
		}
		get(&Health{Metrics: m.Handler()}, "/metrics")
		if store.counts.Load() != 4 {
			t.Error("counted after the close")
		}
	})
}

// TestRoundsBeyondTheCap: if more items wait than are counted, the number of open rounds is left out.
func TestRoundsBeyondTheCap(t *testing.T) {
	for _, c := range []struct {
		counts stats.Counts
		open   bool
	}{
		{stats.Counts{Waiting: stats.StandingCap, RoundsDone: stats.StandingCap}, true},
		{stats.Counts{Waiting: stats.StandingCap + 1, RoundsDone: stats.StandingCap}, false},
		{stats.Counts{Waiting: stats.StandingCap + 2, RoundsDone: stats.StandingCap - 1}, false}, // one of them is open
		{stats.Counts{Waiting: stats.StandingCap + 1}, true},                                     // they do not recur
	} {
		open := false
		backlog(&c.counts, time.Now(), func(d *prometheus.Desc, _ float64, labels ...string) {
			open = open || d == roundsDesc && slices.Contains(labels, string(ledger.RoundOpen))
		})
		if open != c.open {
			t.Errorf("%+v: open is shown: %t", c.counts, open)
		}
	}
}

// slow is a store that may not answer.
type slow struct {
	ledger.Store
	hangs     bool
	countTime time.Duration
	counts    atomic.Int64
}

func (s *slow) Counts(ctx context.Context, since time.Time) ([]stats.Counts, error) {
	s.counts.Add(1)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.countTime):
		return s.Store.Counts(ctx, since)
	}
}

func (s *slow) Now(ctx context.Context) (time.Time, error) {
	if s.hangs {
		<-ctx.Done()
		return time.Time{}, ctx.Err()
	}
	return s.Store.Now(ctx)
}

// TestSources: Set restarts the sources that have changed, keeps the others, and stops those that are gone.
func TestSources(t *testing.T) {
	onBoth(t, func(t *testing.T, l *ledger.Ledger) {
		looks := make(chan string, 100)
		of := func(name, path string, rules ...string) source.Config {
			return source.Config{Ledger: l, Spec: &config.Source{Name: name, Type: "list", Kind: "check", Path: path,
				Schedule: "7d"},
				Template: ledger.NewItem{Kind: "check"}, Input: ledger.Input{Type: intake.Line}, Agent: "me", TTL: time.Minute,
				Rules: strings.Join(rules, ""), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
				Observe: func(l source.Look) { looks <- l.Source }}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var s Sources
		s.Set(ctx, []source.Config{of("same", "a"), of("other", "a"), of("gone", "a"), of("strict", "a")})
		for range 4 {
			<-looks
		}
		s.Set(ctx, []source.Config{of("same", "a"), of("other", "b"), of("new", "a"), of("strict", "a", `{"minimum": 1}`)})
		again := []string{<-looks, <-looks, <-looks}
		slices.Sort(again)
		if !slices.Equal(again, []string{"new", "other", "strict"}) {
			t.Errorf("looked at: %v", again)
		}
		var names []string
		for _, st := range s.Status() {
			names = append(names, st.Name)
		}
		if !slices.Equal(names, []string{"new", "other", "same", "strict"}) {
			t.Errorf("sources %v", names)
		}
		cancel()
		s.Wait()
		if len(looks) > 0 {
			t.Errorf("one more look: %s", <-looks)
		}
		if held, err := locks.New(l).Held(t.Context()); err != nil || len(held) > 0 {
			t.Errorf("locks left: %v, %v", held, err)
		}
	})
}

// TestAlertsAndDashboard: the alert rules and the dashboard ask for metrics that there are.
func TestAlertsAndDashboard(t *testing.T) {
	onBoth(t, func(t *testing.T, l *ledger.Ledger) {
		m := NewMetrics("1", l, State{Plugins: func() map[string]PluginState { return nil }, Sources: func() []source.Status {
			return nil
		}})
		described := make(chan *prometheus.Desc, 1000)
		m.registry.Describe(described)
		close(described)
		var all strings.Builder
		for d := range described {
			all.WriteString(d.String())
		}
		for _, file := range []string{"../../contrib/prometheus/alerts.yml", "../../contrib/grafana/ledgerd.json"} {
			text, err := os.ReadFile(file)
			must.OK(t, err)
			names := regexp.MustCompile(`\bledger_[a-z_]+`).FindAllString(string(text), -1)
			for _, name := range names {
				if !strings.Contains(all.String(), `"`+strings.TrimSuffix(name, "_bucket")+`"`) {
					t.Errorf("%s asks for %s", file, name)
				}
			}
			if !slices.Contains(names, "ledger_rounds") { // recurring items are never in the state dead
				t.Errorf("%s does not ask how rounds stand", file)
			}
			if len(names) < 8 {
				t.Errorf("%s asks for %d metrics only", file, len(names))
			}
		}
	})
}
