//go:build unix

package chaostest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// Soak is the use of resources by a daemon that worked for a long time.
type Soak struct {
	Database Database
	Minutes  float64
	Items    int64
	Gauges   []Gauge
}

// Gauge is one figure over time: its median in the second fifth of the time, and in the last.
type Gauge struct {
	Name    string
	Early   float64
	Late    float64
	Most    float64
	Growing bool
}

// noise is the growth of each gauge that does not count, in its unit. A tenth of the gauge does not count either.
var noise = map[string]float64{"memory, MiB": 4, "memory of plugins, MiB": 4, "goroutines": 5, "file descriptors": 3,
	"threads": 3, "write-ahead log, MiB": 17}

const (
	sampleEvery = 5 * time.Second
	soakRate    = 20 // batches a second, each of 10 items
)

// Soak makes a daemon work steadily for a time, keeps its ledger short by retention, and measures.
func (c *Campaign) Soak(ctx context.Context, db Database, d time.Duration) (s Soak, err error) {
	err = c.withServer(db == Postgres, func() error {
		s, err = c.soak(ctx, db, d)
		return err
	})
	return s, err
}

func (c *Campaign) soak(ctx context.Context, db Database, d time.Duration) (s Soak, err error) {
	r := &run{campaign: c, plan: Plan{Database: db, Fault: Kill, Lease: 15 * time.Second,
		Kinds: []string{repeatableKind, onceKind}},
		name: "soak-" + string(db), frozen: map[int]int64{}, faulted: map[string]int{}}
	r.dir = filepath.Join(c.Dir, r.name)
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return s, err
	}
	defer func() {
		for i := len(r.closers) - 1; i >= 0; i-- {
			err = errors.Join(err, r.closers[i]())
		}
	}()
	if err := r.open(ctx); err != nil {
		return s, err
	}
	for _, k := range r.plan.Kinds {
		if err := r.client.SetKind(ctx, "harness", ledger.Kind{Name: k, Keep: time.Minute,
			Backoff: ledger.Backoff{Base: 50 * time.Millisecond, Cap: time.Second}}); err != nil {
			return s, err
		}
	}
	daemon, err := r.start(0, history.Env+"=") // without a history, as it would grow
	if err != nil {
		return s, err
	}
	defer daemon.signal(syscall.SIGKILL)
	ctx, end := context.WithTimeout(ctx, d)
	defer end()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.feedSteadily(ctx, &s.Items) })
	samples := map[string][]float64{}
	g.Go(func() error { return r.sample(ctx, daemon, samples) })
	began := time.Now()
	if err := g.Wait(); err != nil {
		return s, err
	}
	s.Database, s.Minutes = db, time.Since(began).Minutes()
	for name, values := range samples {
		s.Gauges = append(s.Gauges, gauge(name, values))
	}
	slices.SortFunc(s.Gauges, func(a, b Gauge) int { return strings.Compare(a.Name, b.Name) })
	return s, daemon.stop(stopTime)
}

func gauge(name string, values []float64) Gauge {
	fifth := max(1, len(values)/5)
	g := Gauge{Name: name, Early: median(values[min(fifth, len(values)-1):min(2*fifth, len(values))]),
		Late: median(values[len(values)-fifth:]), Most: slices.Max(values)}
	g.Growing = g.Late > g.Early*1.1+noise[name]
	return g
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

// feedSteadily adds items at a constant rate.
func (r *run) feedSteadily(ctx context.Context, added *int64) error {
	random := r.plan.random(forFeed)
	tick := time.Tick(time.Second / soakRate)
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		var batch []ledger.NewItem
		for range 10 {
			batch = append(batch, r.item(random, n))
			n++
		}
		if err := r.add(ctx, batch...); tolerable(err) != nil {
			return err
		}
		*added = int64(n)
	}
}

// sample measures the daemon every sampleEvery.
func (r *run) sample(ctx context.Context, d *daemon, samples map[string][]float64) error {
	tick := time.Tick(sampleEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.exited:
			return fmt.Errorf("the daemon ended: %v; see %s", d.cmd.ProcessState, r.path("log-0"))
		case <-tick:
		}
		note := func(name string, value float64) { samples[name] = append(samples[name], value) }
		pid := d.cmd.Process.Pid
		note("memory, MiB", status(pid, "VmRSS")/1024)
		note("threads", status(pid, "Threads"))
		var plugins float64
		for _, child := range children(pid) {
			plugins += status(child, "VmRSS") / 1024
		}
		note("memory of plugins, MiB", plugins)
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return err
		}
		note("file descriptors", float64(len(fds)))
		if r.file != "" {
			if info, err := os.Stat(r.file + "-wal"); err == nil {
				note("write-ahead log, MiB", float64(info.Size())/(1<<20))
			}
		}
		d.signal(syscall.SIGUSR1)
		if n, ok := lastGoroutines(r.path("log-0")); ok {
			note("goroutines", n)
		}
	}
}

// status returns a number of the kernel's status of a process.
func status(pid int, field string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			n, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return n
		}
	}
	return 0
}

// lastGoroutines returns the last number of goroutines in the daemon's log.
func lastGoroutines(log string) (n float64, ok bool) {
	text, err := os.ReadFile(log)
	if err != nil {
		return 0, false
	}
	_, after, found := strings.Cut(string(text[max(0, strings.LastIndex(string(text), "goroutines ")):]), "goroutines ")
	if !found {
		return 0, false
	}
	n, err = strconv.ParseFloat(strings.Fields(after)[0], 64)
	return n, err == nil
}

// Growing reports whether any gauge is growing.
func (s Soak) Growing() bool {
	return slices.ContainsFunc(s.Gauges, func(g Gauge) bool { return g.Growing })
}

// Print prints a table.
func (s Soak) Print(out io.Writer) error {
	fmt.Fprintf(out, "%s: %.0f minutes, %d items\n", s.Database, s.Minutes, s.Items)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "gauge\tearly\tlate\tmost\t\t")
	for _, g := range s.Gauges {
		trend := "flat"
		if g.Growing {
			trend = "growing"
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%s\t\n", g.Name, g.Early, g.Late, g.Most, trend)
	}
	return w.Flush()
}
