package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk"
)

// benched is what bench prints.
type benched struct {
	Items        int64   `json:"items"`
	Through      string  `json:"through"`
	Clients      int     `json:"clients"`
	Database     string  `json:"database"`
	Durability   string  `json:"durability"`
	Cores        int     `json:"cores"`
	AddPerSecond float64 `json:"add_per_second"`
	Drain        float64 `json:"drain_per_second"`
	P50          int64   `json:"start_latency_p50_us"`
	P99          int64   `json:"start_latency_p99_us"`
	Version      string  `json:"version"`
}

type benchFlags struct {
	items   int
	clients int
	through choice
}

func (a *app) benchCommand() *cobra.Command {
	b := benchFlags{through: choice{value: "plugin", of: []string{"none", "plugin"}}}
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure this machine and its database with work that does nothing", Args: arguments(0, 0),
		Long: `Adds items that need no work, drains them, and measures how long an item that is added to an idle
ledger takes to be started. It does so in a file or a schema of its own, beside the ledger that
--db names, and removes it at the end: the ledger itself is not touched.

With -o json: {"items","through","clients","database","durability","cores","add_per_second",
"drain_per_second","start_latency_p50_us","start_latency_p99_us","version"}.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if b.items < 1 || b.clients < 1 || b.clients > 64 {
				return usage("bad_flag", "", "--items is at least 1, --clients 1 to 64")
			}
			return a.bench(cmd.Context(), b)
		},
	}
	cmd.Flags().IntVar(&b.items, "items", 100_000, "`number` of items")
	cmd.Flags().IntVar(&b.clients, "clients", 1, "`number` of those that add and drain at the same time")
	cmd.Flags().Var(&b.through, "through", "what works the items: none, a function in this process; plugin, a plugin's process")
	return cmd
}

func (a *app) bench(ctx context.Context, flags benchFlags) (err error) {
	at, err := a.address()
	if err != nil {
		return err
	}
	at, remove, err := at.Beside("ledgerd_bench_" + strings.ToLower(rand.Text()[:12]))
	if err != nil {
		return a.explainOpen(at, err)
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	l, err := a.openAt(ctx, at, true)
	if err != nil {
		return err
	}
	defer l.Close()
	b := benched{Items: int64(flags.items), Through: flags.through.value, Clients: flags.clients, Durability: "full", Cores: runtime.NumCPU(), Version: programVersion()}
	if b.Database, err = at.Version(ctx); err != nil {
		return err
	}
	m := &measurement{app: a, l: l.Ledger, flags: flags}
	if err := m.start(ctx); err != nil {
		return err
	}
	defer m.close()
	if b.AddPerSecond, err = m.add(ctx); err != nil {
		return err
	}
	if b.Drain, err = m.drain(ctx); err != nil {
		return err
	}
	if b.P50, b.P99, err = m.latency(ctx); err != nil {
		return err
	}
	return one(a, b, fmt.Sprintf("%s, %d cores, %s items through %s, %s, ledgerd %s\nadd %s/s   drain %s/s   add to start: p50 %.1f ms, p99 %.1f ms",
		b.Database, b.Cores, report.Count(b.Items), map[string]string{"none": "a function", "plugin": "a plugin"}[b.Through], plural(int64(b.Clients), "client"), b.Version,
		report.Count(int64(b.AddPerSecond)), report.Count(int64(b.Drain)), float64(b.P50)/1000, float64(b.P99)/1000))
}

// benchPlugin does nothing; asked to, it says when it began.
const benchPlugin = "bench-nothing"

type benchIn struct {
	Text string `json:"text" input:"line" doc:"ignored"`
	Tell bool   `json:"tell" doc:"say when it began"`
}

type benchOut struct {
	At int64 `json:"at" doc:"when it began, nanoseconds since 1970"`
}

func benchNothing() *sdk.Plugin {
	p := sdk.New(benchPlugin, "0.1.0", func(_ context.Context, _ *struct{}, it sdk.Item[benchIn]) (*benchOut, error) {
		if it.Payload.Tell {
			return &benchOut{time.Now().UnixNano()}, nil
		}
		return nil, nil
	})
	p.Doc = "Does nothing, for ledgerd self bench."
	p.Concurrency = 1000
	return p
}

// measurement is one run of bench.
type measurement struct {
	app     *app
	l       *ledger.Ledger
	flags   benchFlags
	handler worker.Handler
	close   func()
}

// start readies what works the items.
func (m *measurement) start(ctx context.Context) error {
	m.close = func() {}
	if m.flags.through.value == "none" {
		m.handler = inline{}
		return nil
	}
	k, err := m.app.resolve(ctx, nil, benchPlugin, "", pluginDirs{})
	if err != nil {
		return err
	}
	h, err := m.app.startPlugin(ctx, k, nil, pluginhost.Config{})
	if err != nil {
		return err
	}
	m.handler, m.close = h, func() { h.Close(stopGrace) }
	return nil
}

// inline settles at once.
type inline struct{}

func (inline) Handle(_ context.Context, lease *ledger.Lease, settle func(ledger.Result)) {
	if strings.HasPrefix(lease.Key, latencyKey) {
		settle(ledger.Done(ledger.JSON(benchOut{time.Now().UnixNano()})))
		return
	}
	settle(ledger.Done(nil))
}

// addBatch is how many items are added at a time.
const addBatch = 1000

func (m *measurement) add(ctx context.Context) (perSecond float64, err error) {
	began := time.Now()
	g, group := errgroup.WithContext(ctx)
	for c := range m.flags.clients {
		g.Go(func() error {
			for first := c * addBatch; first < m.flags.items; first += m.flags.clients * addBatch {
				items := make([]ledger.NewItem, min(addBatch, m.flags.items-first))
				for i := range items {
					key := fmt.Sprintf("/bench/%09d", first+i)
					items[i] = ledger.NewItem{Kind: benchPlugin, Key: key, Payload: ledger.JSON(benchIn{Text: key})}
				}
				if _, err := m.l.Add(group, items...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return rate(m.flags.items, began), err
}

func (m *measurement) drain(ctx context.Context) (perSecond float64, err error) {
	began := time.Now()
	g, group := errgroup.WithContext(ctx)
	for range m.flags.clients {
		g.Go(func() error {
			w, err := m.worker(nil)
			if err == nil {
				_, err = w.Drain(group, 0)
			}
			return errors.Join(err, ctx.Err())
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	perSecond = rate(m.flags.items, began)
	left, err := m.l.Count(ctx, ledger.Filter{States: []ledger.State{ledger.StateDone}})
	if err == nil && left != int64(m.flags.items) {
		err = fmt.Errorf("bench: %d of %d items are done", left, m.flags.items)
	}
	return perSecond, err
}

func (m *measurement) worker(observe func(worker.Event)) (*worker.Worker, error) {
	return worker.New(worker.Config{Ledger: m.l, Handlers: map[string]worker.Handler{benchPlugin: m.handler}, Agent: agentName(), Version: programVersion(),
		Concurrency: 1000, Logger: m.app.logger(), Observe: observe})
}

// latencyTries is how many items are added to an idle ledger, one by one.
const latencyTries = 200

const latencyKey = "/latency/"

// latency is the time from the call that adds an item to the start of its work.
func (m *measurement) latency(ctx context.Context) (p50, p99 int64, err error) {
	began := make(chan time.Time, 1)
	w, err := m.worker(func(e worker.Event) {
		var out benchOut
		_ = json.Unmarshal(e.Result.Output, &out)
		began <- time.Unix(0, out.At)
	})
	if err != nil {
		return 0, 0, err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	var took []time.Duration
	for i := range latencyTries {
		key := fmt.Sprint(latencyKey, i)
		called := time.Now()
		if _, err := m.l.Add(ctx, ledger.NewItem{Kind: benchPlugin, Key: key, Payload: ledger.JSON(benchIn{key, true})}); err != nil {
			return 0, 0, err
		}
		select {
		case at := <-began:
			took = append(took, at.Sub(called))
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	slices.Sort(took)
	return took[len(took)/2].Microseconds(), took[len(took)*99/100].Microseconds(), nil
}

func rate(n int, began time.Time) float64 {
	return math.Round(float64(n) / max(time.Since(began).Seconds(), 1e-6))
}
