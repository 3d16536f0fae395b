package daemon

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ledgerd/ledgerd/internal/source"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Metrics counts what the daemon does, and asks the ledger for its state when it is scraped.
type Metrics struct {
	registry *prometheus.Registry

	transitions *prometheus.CounterVec
	fenced      *prometheus.CounterVec
	unrecorded  *prometheus.CounterVec
	expired     prometheus.Counter
	claimed     *prometheus.HistogramVec
	waited      *prometheus.HistogramVec
	worked      *prometheus.HistogramVec

	looks    *prometheus.CounterVec
	looked   *prometheus.HistogramVec
	verdicts *prometheus.CounterVec
	finished *prometheus.CounterVec
	bad      *prometheus.CounterVec
}

// seconds are the bounds of histograms of times, from milliseconds to hours.
var seconds = []float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1800, 7200}

// NewMetrics makes the metrics of a process that works l. Values by state are read when they are
// scraped.
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
	m.registry.MustRegister(&standing{ledger: l, state: state, introduce: m.introduce}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func register[C prometheus.Collector](m *Metrics, c C) C {
	m.registry.MustRegister(c)
	return c
}

// Handler answers with all metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 20 * time.Second})
}

// introduce shows what alerts count of a kind from 0 on: a series that begins at 3,000 has not increased.
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

// PluginState is how the process of a plugin is.
type PluginState struct {
	Up       bool
	Restarts int
	RSS      int64 // bytes; 0 where it is not known
}

// State is what the other parts of the daemon report.
type State struct {
	Plugins func() map[string]PluginState // by kind
	Sources func() []source.Status
	Busy    func() int64 // of the store
}

var (
	itemsDesc = prometheus.NewDesc("ledger_items", "Unfinished items of the whole ledger.", []string{"kind", "state"},
		nil)
	oldestDesc = prometheus.NewDesc("ledger_oldest_ready_age_seconds",
		"How long the longest ready item of a kind has been due; 0 if none is ready.", []string{"kind"}, nil)
	roundsDesc = prometheus.NewDesc("ledger_rounds", "Items by how their current round stands: open is what is left "+
		"to do, failed and done are recurring items that wait for their next round (counted up to 100,000 of a kind).", []string{"kind", "state"}, nil)
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
	goodDesc = prometheus.NewDesc("ledger_source_last_success_timestamp_seconds",
		"When this process last looked at a source without an error.", []string{"source"}, nil)
)

// standing asks the ledger how it stands, at most every few seconds.
type standing struct {
	ledger    *ledger.Ledger
	state     State
	introduce func(kind string)

	mu     sync.Mutex
	asked  time.Time
	took   time.Duration // to ask
	answer answer
}

// answer is how the ledger stood at a time of the database's clock. Only this one tells how long an item has been due.
type answer struct {
	at     time.Time
	counts []stats.Counts
	kinds  []ledger.Kind
	err    error
}

const (
	askEvery = 5 * time.Second
	askTime  = 5 * time.Second
	askShare = 20 // of the time that asking took: a backlog of millions takes long to count
)

// Describe implements prometheus.Collector.
func (s *standing) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{itemsDesc, roundsDesc, oldestDesc, pausedDesc, upDesc, ageDesc, pluginDesc,
		restartDesc, rssDesc, busyDesc, sourceDesc, sourceIsDesc, youngDesc, wrongDesc, goodDesc} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (s *standing) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	stood, age := s.ask()
	gauge(upDesc, number(stood.err == nil))
	if stood.err == nil {
		gauge(ageDesc, age.Seconds())
	}
	for _, k := range stood.counts {
		for state, n := range map[ledger.State]int64{ledger.StateWaiting: k.Waiting, ledger.StateReady: k.Ready,
			ledger.StateLeased: k.Leased, ledger.StateDead: k.Dead, ledger.StateDoubt: k.Doubt} {
			gauge(itemsDesc, float64(n), k.Kind, string(state))
		}
		for round, n := range map[ledger.RoundState]int64{ledger.RoundOpen: k.Open(), ledger.RoundDone: k.RoundsDone,
			ledger.RoundFailed: k.RoundsFailed, ledger.RoundPutOff: k.RoundsPutOff} {
			gauge(roundsDesc, float64(n), k.Kind, string(round))
		}
		ready := 0.0
		if !k.OldestReady.IsZero() {
			ready = max(0, (stood.at.Sub(k.OldestReady) + age).Seconds())
		}
		gauge(oldestDesc, ready, k.Kind)
	}
	for _, k := range stood.kinds {
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
		}
		if !st.Good.IsZero() {
			gauge(goodDesc, float64(st.Good.UnixMilli())/1000, st.Name)
		}
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// ask counts what is in the ledger, and tells how long ago that was. An answer counts for a while, so that asking never
// takes more than a twentieth of the time, no matter who asks.
func (s *standing) ask() (answer, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := askEvery
	if s.answer.err == nil { // after an error the ledger may be back at once
		pause = max(askEvery, askShare*s.took)
	}
	if time.Since(s.asked) >= pause {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		s.answer = s.now(ctx)
		s.asked = time.Now()
		s.took = s.asked.Sub(began)
	}
	return s.answer, time.Since(s.asked)
}

func (s *standing) now(ctx context.Context) (a answer) {
	if a.at, a.err = s.ledger.Now(ctx); a.err == nil {
		a.counts, a.err = s.ledger.Counts(ctx, a.at) // of what has ended none is asked for
	}
	if a.err == nil {
		a.kinds, a.err = s.ledger.Kinds(ctx)
	}
	return a
}
