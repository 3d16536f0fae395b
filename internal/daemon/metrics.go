package daemon

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ledgerd/ledgerd/internal/source"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Metrics counts what the daemon does, and asks the ledger for its state when it is scraped. NewMetrics has the name
// and the help of each metric.
type Metrics struct {
	registry *prometheus.Registry
	standing *standing
	stop     context.CancelFunc // ends standing.life

	// of attempts and leases
	transitions *prometheus.CounterVec
	fenced      *prometheus.CounterVec
	unrecorded  *prometheus.CounterVec
	expired     prometheus.Counter
	claimed     *prometheus.HistogramVec
	waited      *prometheus.HistogramVec
	worked      *prometheus.HistogramVec

	// of sources
	looks    *prometheus.CounterVec
	looked   *prometheus.HistogramVec
	verdicts *prometheus.CounterVec
	finished *prometheus.CounterVec
	bad      *prometheus.CounterVec
}

// seconds are the bounds of histograms of times, from milliseconds to hours.
var seconds = []float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1800, 7200}

// NewMetrics makes the metrics of a process that works l. The state of the ledger is read when they are scraped, until
// Close.
func NewMetrics(version string, l *ledger.Ledger, state State) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "ledger_" + name, Help: help}, labels))
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return register(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "ledger_" + name, Help: help,
			Buckets: seconds}, labels))
	}
	m.transitions = counter("transitions_total", "Attempts that ended here and were recorded, by the outcome as it was "+
		"recorded and the state that the item came to.", "kind", "outcome", "to")
	m.fenced = counter("fenced_writes_total",
		"Results of this process that the ledger refused, because the lease was lost.", "kind")
	m.unrecorded = counter("unrecorded_results_total", "Results of this process that could not be recorded; their "+
		"items are worked again.", "kind")
	m.expired = register(m, prometheus.NewCounter(prometheus.CounterOpts{Name: "ledger_leases_expired_total",
		Help: "Leases that this process took from holders, here or elsewhere, that had not renewed them in time."}))
	m.claimed = histogram("claim_seconds", "Time that the ledger took to answer a claim.", "kind")
	m.waited = histogram("wait_seconds", "Time from when an item was due to its start.", "kind")
	m.worked = histogram("process_seconds", "Time from the start of an attempt to its end.", "kind")
	m.looks = counter("source_looks_total", "Looks at a source by this process.", "source", "result")
	m.looked = histogram("source_look_seconds", "Time that a look at a source took.", "source")
	m.verdicts = counter("source_items_total", "Items that looks found, by what the ledger said of them.", "source",
		"verdict")
	m.finished = counter("source_finished_files_total", "Finished files that were moved or deleted.", "source")
	m.bad = counter("source_bad_lines_total", "Lines and rows that make no item; the same ones at every look.", "source")
	build := register(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "ledger_build_info",
		Help: "1, with the version of this program."}, []string{"version"}))
	build.WithLabelValues(version).Set(1)
	m.standing = &standing{ledger: l, state: state, introduce: m.introduce, counted: make(chan struct{})}
	close(m.standing.counted)
	m.standing.life, m.stop = context.WithCancel(context.Background())
	m.registry.MustRegister(m.standing, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// register adds a metric to the registry and returns it.
func register[C prometheus.Collector](m *Metrics, c C) C {
	m.registry.MustRegister(c)
	return c
}

// Close ends the reads of the ledger and waits for the last one.
func (m *Metrics) Close() {
	m.stop()
	m.standing.mu.Lock()
	defer m.standing.mu.Unlock()
	m.standing.all.Wait()
}

// Handler answers with all metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 20 * time.Second})
}

// introduce shows the counters of a kind that alerts use, from 0 on: a series that begins at 3,000 does not look like
// an increase.
func (m *Metrics) introduce(kind string) {
	for _, out := range []ledger.Outcome{ledger.OutcomeFailed, ledger.OutcomeCrashed} {
		m.transitions.WithLabelValues(kind, string(out), string(ledger.StateDead))
	}
	m.fenced.WithLabelValues(kind)
	m.unrecorded.WithLabelValues(kind)
	m.transitions.WithLabelValues(kind, string(ledger.OutcomeUnknown), string(ledger.StateDoubt))
}

// Attempt counts an attempt that has ended.
func (m *Metrics) Attempt(e worker.Event) {
	kind := e.Lease.Kind
	switch {
	case e.Accepted():
		m.transitions.WithLabelValues(kind, string(e.Recorded), string(e.State)).Inc()
	case errors.Is(e.Err, ledger.ErrLeaseLost):
		m.fenced.WithLabelValues(kind).Inc()
	default:
		m.unrecorded.WithLabelValues(kind).Inc()
	}
	if e.Worked > 0 {
		m.waited.WithLabelValues(kind).Observe(e.Waited.Seconds())
		m.worked.WithLabelValues(kind).Observe(e.Worked.Seconds())
	}
}

// Claimed implements worker.Meter.
func (m *Metrics) Claimed(kind string, _ int, took time.Duration) {
	m.claimed.WithLabelValues(kind).Observe(took.Seconds())
}

// Expired implements worker.Meter.
func (m *Metrics) Expired(leases int) { m.expired.Add(float64(leases)) }

// Look counts a look at a source.
func (m *Metrics) Look(l source.Look) {
	result := "ok"
	if l.Err != nil {
		result = "error"
	}
	m.looks.WithLabelValues(l.Source, result).Inc()
	m.looked.WithLabelValues(l.Source).Observe(l.Took.Seconds())
	for v, n := range l.Verdicts {
		m.verdicts.WithLabelValues(l.Source, string(v)).Add(float64(n))
	}
	m.finished.WithLabelValues(l.Source).Add(float64(l.Finished))
	m.bad.WithLabelValues(l.Source).Add(float64(l.Bad))
}

// PluginState is the state of a plugin process.
type PluginState struct {
	Up       bool
	Restarts int
	RSS      int64 // bytes; 0 where it is not known
}

// State is what the other parts of the daemon report.
type State struct {
	Plugins func() map[string]PluginState // by kind
	Sources func() []source.Status
	Busy    func() int64 // of the store, see ledger_db_busy_total
}

var (
	itemsDesc = prometheus.NewDesc("ledger_items", "Unfinished items of the whole ledger.", []string{"kind", "state"},
		nil)
	oldestDesc = prometheus.NewDesc("ledger_oldest_ready_age_seconds",
		"How long the longest ready item of a kind had been due when it was counted; 0 if none was ready.",
		[]string{"kind"}, nil)
	roundsDesc = prometheus.NewDesc("ledger_rounds", "Items by how their current round stands: open is what is left "+
		"to do, failed and done are recurring items that wait for their next round (counted up to 100,000 of a kind; beyond, "+
		"open is missing).", []string{"kind", "state"}, nil)
	pausedDesc = prometheus.NewDesc("ledger_kind_paused", "Whether the kind is paused: nothing of it is begun.",
		[]string{"kind"}, nil)
	ageDesc = prometheus.NewDesc("ledger_counts_age_seconds", "How long ago the items of this page were counted.",
		nil, nil)
	upDesc     = prometheus.NewDesc("ledger_up", "Whether the ledger answered, for this page.", nil, nil)
	pluginDesc = prometheus.NewDesc("ledger_plugin_up", "Whether the process of the kind's plugin runs.",
		[]string{"kind"}, nil)
	restartDesc = prometheus.NewDesc("ledger_plugin_restarts_total",
		"Starts of the process of the kind's plugin after its first one.", []string{"kind"}, nil)
	rssDesc = prometheus.NewDesc("ledger_plugin_rss_bytes", "Memory of the process of the kind's plugin.",
		[]string{"kind"}, nil)
	busyDesc = prometheus.NewDesc("ledger_db_busy_total", "How often others were in the way: on SQLite waits for "+
		"the write lock, on Postgres transactions that were undone, or cut off, and run again.", nil, nil)
	sourceDesc = prometheus.NewDesc("ledger_source_up", "1: the last look at the source was good, or another daemon "+
		"looks; 0: it failed.", []string{"source"}, nil)
	sourceIsDesc = prometheus.NewDesc("ledger_source_looking", "Whether this process is the one that looks at the source.",
		[]string{"source"}, nil)
	youngDesc = prometheus.NewDesc("ledger_source_young_files", "Files that were still being written at the last look.",
		[]string{"source"}, nil)
	wrongDesc = prometheus.NewDesc("ledger_source_wrong_files", "Files that could not be taken at the last look: "+
		"unreadable, or with a name that cannot be stored.", []string{"source"}, nil)
	nextDesc = prometheus.NewDesc("ledger_source_next_look_timestamp_seconds",
		"When this process is to look at a source next; if this lies in the past, a look is under way.", []string{"source"}, nil)
	goodDesc = prometheus.NewDesc("ledger_source_last_success_timestamp_seconds",
		"When this process last looked at a source without an error.", []string{"source"}, nil)
)

// standing asks the ledger how it stands, at most every few seconds.
type standing struct {
	ledger    *ledger.Ledger
	state     State
	introduce func(kind string)

	life context.Context // ends at Close
	all  sync.WaitGroup  // the count that runs

	mu      sync.Mutex
	asked   time.Time // of the last answer of the ledger: kinds and err
	kinds   []ledger.Kind
	err     error
	counted chan struct{} // closed when the newest count has ended
	next    time.Time     // when to count again; count sets it before it closes counted
	tally   atomic.Pointer[tally]
}

// tally is the result of the newest count without an error.
type tally struct {
	began  time.Time
	now    time.Time // began, by the database's clock, with which the ages of items are computed
	counts []stats.Counts
}

const (
	askEvery  = 5 * time.Second // the answers of the ledger are used again until then
	askTime   = 5 * time.Second // bounds how long a scrape waits for the ledger
	countTime = time.Minute     // bounds a count
	askShare  = 20              // the pause between two counts is at least 20 times as long as a count took
)

// Describe implements prometheus.Collector.
func (s *standing) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{itemsDesc, roundsDesc, oldestDesc, pausedDesc, upDesc, ageDesc, pluginDesc,
		restartDesc, rssDesc, busyDesc, sourceDesc, sourceIsDesc, youngDesc, wrongDesc, nextDesc, goodDesc} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (s *standing) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	kinds, err := s.ask()
	gauge(upDesc, number(err == nil))
	if t := s.tally.Load(); t != nil && err == nil {
		gauge(ageDesc, time.Since(t.began).Seconds())
		for i := range t.counts {
			backlog(&t.counts[i], t.now, gauge)
		}
	}
	for _, k := range kinds {
		s.introduce(k.Name)
		gauge(pausedDesc, number(k.Paused), k.Name)
	}
	for kind, p := range s.state.Plugins() {
		gauge(pluginDesc, number(p.Up), kind)
		c <- prometheus.MustNewConstMetric(restartDesc, prometheus.CounterValue, float64(p.Restarts), kind)
		if p.RSS > 0 {
			gauge(rssDesc, float64(p.RSS), kind)
		}
	}
	c <- prometheus.MustNewConstMetric(busyDesc, prometheus.CounterValue, float64(s.state.Busy()))
	for _, st := range s.state.Sources() {
		gauge(sourceDesc, number(st.Error == ""), st.Name)
		gauge(sourceIsDesc, number(st.Looking), st.Name)
		if st.Looking { // else another daemon knows better by now
			gauge(youngDesc, float64(st.Young), st.Name)
			gauge(wrongDesc, float64(st.Wrong), st.Name)
			gauge(nextDesc, float64(st.Next.UnixMilli())/1000, st.Name)
		}
		if !st.Good.IsZero() {
			gauge(goodDesc, float64(st.Good.UnixMilli())/1000, st.Name)
		}
	}
}

// backlog reports the unfinished items of a kind.
func backlog(k *stats.Counts, now time.Time, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	for state, n := range map[ledger.State]int64{ledger.StateWaiting: k.Waiting, ledger.StateReady: k.Ready,
		ledger.StateLeased: k.Leased, ledger.StateDead: k.Dead, ledger.StateDoubt: k.Doubt} {
		gauge(itemsDesc, float64(n), k.Kind, string(state))
	}
	for round, n := range map[ledger.RoundState]int64{ledger.RoundDone: k.RoundsDone, ledger.RoundFailed: k.RoundsFailed,
		ledger.RoundPutOff: k.RoundsPutOff} {
		gauge(roundsDesc, float64(n), k.Kind, string(round))
	}
	// Beyond the cap, rounds that have ended would count as open.
	if k.Waiting <= stats.StandingCap || k.RoundsDone+k.RoundsFailed+k.RoundsPutOff == 0 {
		gauge(roundsDesc, float64(k.Open()), k.Kind, string(ledger.RoundOpen))
	}
	ready := 0.0
	if !k.OldestReady.IsZero() {
		ready = max(0, now.Sub(k.OldestReady).Seconds())
	}
	gauge(oldestDesc, ready, k.Kind)
}

// number returns 1 for true, the value of a gauge of yes or no.
func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// ask returns the kinds, or an error if the ledger does not answer. If it is time for a new count, ask starts it and
// waits for it, for askTime in all.
func (s *standing) ask() ([]ledger.Kind, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.asked) < askEvery {
		return s.kinds, s.err
	}
	ctx, cancel := context.WithTimeout(s.life, askTime)
	defer cancel()
	now, err := s.ledger.Now(ctx)
	s.kinds = nil
	if err == nil {
		s.kinds, err = s.ledger.Kinds(ctx)
	}
	s.asked, s.err = time.Now(), err
	if err != nil {
		return nil, err
	}
	select {
	case <-s.counted:
		if ctx.Err() != nil || time.Now().Before(s.next) {
			break
		}
		counted := make(chan struct{})
		s.counted = counted
		s.all.Go(func() { s.count(now, counted) })
		select {
		case <-counted:
		case <-ctx.Done(): // the older tally is shown until this count has ended
		}
	default: // a count runs
	}
	return s.kinds, nil
}

// count counts the unfinished items of the ledger and stores the result as the tally.
func (s *standing) count(now time.Time, counted chan<- struct{}) {
	defer close(counted)
	ctx, cancel := context.WithTimeout(s.life, countTime)
	defer cancel()
	began := time.Now()
	if counts, err := s.ledger.Counts(ctx, now); err == nil {
		s.tally.Store(&tally{began: began, now: now, counts: counts})
	}
	s.next = time.Now().Add(max(askEvery, askShare*time.Since(began)))
}
