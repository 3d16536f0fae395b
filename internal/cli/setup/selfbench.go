package setup

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

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk"
)

// Benched is what bench prints.
type Benched struct {
	Items        int64   `json:"items"`
	Database     string  `json:"database"`
	Durability   string  `json:"durability"`
	Cores        int     `json:"cores"`
	AddPerSecond float64 `json:"add_per_second"`
	Drain        float64 `json:"drain_per_second"`
	P50          int64   `json:"start_latency_p50_us"`
	P99          int64   `json:"start_latency_p99_us"`
	Version      string  `json:"version"`
}

func benchCommand(a *app.App) *cobra.Command {
	var items int
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure this machine and its database with work that does nothing", Args: app.Arguments(0, 0),
		Long: `Adds items that need no work, drains them, and measures how long an item that is added to an idle
ledger takes to be started. It does so in a file or a schema of its own, beside the ledger that
--db names, and removes it at the end: the ledger itself is not touched.

With -o json: {"items","database","durability","cores","add_per_second",
"drain_per_second","start_latency_p50_us","start_latency_p99_us","version"}.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if items < 1 {
				return failure.Usage("bad_flag", "", "--items is at least 1")
			}
			return bench(cmd.Context(), a, items)
		},
	}
	cmd.Flags().IntVar(&items, "items", 100_000, "`number` of items")
	return cmd
}

func bench(ctx context.Context, a *app.App, items int) (err error) {
	at, err := a.Address()
	if err != nil {
		return err
	}
	at, remove, err := at.Beside("ledgerd_bench_" + strings.ToLower(rand.Text()[:12]))
	if err != nil {
		return a.ExplainOpen(at, err)
	}
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	l, err := a.OpenAt(ctx, at, app.ToMake)
	if err != nil {
		return err
	}
	defer l.Close()
	b := Benched{Items: int64(items), Cores: runtime.NumCPU(), Version: version.String()}
	if b.Database, b.Durability, err = at.Version(ctx); err != nil {
		return err
	}
	m := &measurement{app: a, l: l.Ledger, items: items}
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
	return app.One(a, b, fmt.Sprintf("%s, %d cores, %s items, ledgerd %s\nadd %s/s   drain %s/s   add "+
		"to start: p50 %.1f ms, p99 %.1f ms",
		b.Database, b.Cores, report.Count(b.Items), b.Version,
		report.Count(int64(b.AddPerSecond)), report.Count(int64(b.Drain)), float64(b.P50)/1000, float64(b.P99)/1000))
}

type benchIn struct {
	Text string `json:"text" input:"line" doc:"ignored"`
	Tell bool   `json:"tell" doc:"say when it began"`
}

type benchOut struct {
	At int64 `json:"at" doc:"when it began, nanoseconds since 1970"`
}

func BenchNothing() *sdk.Plugin {
	p := sdk.New(app.BenchPlugin, "0.1.0", func(_ context.Context, _ *struct{}, it sdk.Item[benchIn]) (*benchOut, error) {
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
	app     *app.App
	l       *ledger.Ledger
	items   int
	handler worker.Handler
	close   func()
}

// start readies what works the items.
func (m *measurement) start(ctx context.Context) error {
	m.app.Bundled[app.BenchPlugin] = m.app.Program.Linked(app.BenchPlugin)
	k, err := m.app.Resolve(ctx, nil, app.BenchPlugin, "")
	if err != nil {
		return err
	}
	h, err := m.app.StartPlugin(ctx, k, nil, pluginhost.Config{})
	if err != nil {
		return err
	}
	m.handler, m.close = h, func() { h.Close(kinds.StopGrace) }
	return nil
}

// addBatch is how many items are added at a time.
const addBatch = 1000

func (m *measurement) add(ctx context.Context) (perSecond float64, err error) {
	began := time.Now()
	for first := 0; first < m.items; first += addBatch {
		items := make([]ledger.NewItem, min(addBatch, m.items-first))
		for i := range items {
			key := fmt.Sprintf("/bench/%09d", first+i)
			items[i] = ledger.NewItem{Kind: app.BenchPlugin, Key: key, Payload: ledger.JSON(benchIn{Text: key})}
		}
		if _, err := m.l.Add(ctx, items...); err != nil {
			return 0, err
		}
	}
	return rate(m.items, began), nil
}

func (m *measurement) drain(ctx context.Context) (perSecond float64, err error) {
	began := time.Now()
	w, err := m.worker(ctx, nil)
	if err != nil {
		return 0, err
	}
	if _, err := w.Drain(ctx, 0); err != nil {
		return 0, err
	}
	perSecond = rate(m.items, began)
	left, err := m.l.Count(ctx, ledger.Filter{States: []ledger.State{ledger.StateDone}})
	if err == nil && left != int64(m.items) {
		err = fmt.Errorf("bench: %d of %d items are done", left, m.items)
	}
	return perSecond, err
}

func (m *measurement) worker(ctx context.Context, observe func(worker.Event)) (*worker.Worker, error) {
	return worker.New(worker.Config{Ledger: m.l, Handlers: map[string]worker.Handler{app.BenchPlugin: m.handler},
		Agent: kinds.AgentName(), Version: version.String(),
		Concurrency: 1000, Logger: m.app.Log, Observe: observe, TracerProvider: m.app.TracerProvider(ctx)})
}

// latencyTries is how many items are added to an idle ledger, one by one.
const latencyTries = 200

const latencyKey = "/latency/"

// latency is the time from the call that adds an item to the start of its work.
func (m *measurement) latency(ctx context.Context) (p50, p99 int64, err error) {
	began := make(chan time.Time, 1)
	w, err := m.worker(ctx, func(e worker.Event) {
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
		if _, err := m.l.Add(ctx, ledger.NewItem{Kind: app.BenchPlugin, Key: key,
			Payload: ledger.JSON(benchIn{key, true})}); err != nil {
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
