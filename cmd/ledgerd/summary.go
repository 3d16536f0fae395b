package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// summary is what a run ends with.
type summary struct {
	Type      string           `json:"type"`
	Ledger    string           `json:"ledger"`
	Kind      string           `json:"kind"`
	Plugin    string           `json:"plugin"`
	Added     int64            `json:"added"`
	Changed   int64            `json:"changed"`
	Reopened  int64            `json:"reopened"`
	Known     int64            `json:"known"`
	Differs   int64            `json:"differs"`
	Inputs    inputCounts      `json:"inputs"`
	Others    otherCounts      `json:"others"`
	Emitted   map[string]int64 `json:"emitted"`
	Sums      sums             `json:"sums"`
	NotTaken  []notTaken       `json:"not_taken"`
	BadLines  []badLine        `json:"bad_lines"`
	Failures  []report.Failure `json:"failures"`
	Failing   []report.Failure `json:"failing"` // of inputs that are tried again
	NextDue   report.Time      `json:"next_due"`
	Seconds   float64          `json:"seconds"`
	PerSecond float64          `json:"per_second"`
	Exit      int              `json:"exit"`
}

type inputCounts struct {
	Total     int64 `json:"total"`
	Done      int64 `json:"done"`
	Skipped   int64 `json:"skipped"`
	Dead      int64 `json:"dead"`
	Doubt     int64 `json:"doubt"`
	Waiting   int64 `json:"waiting"`
	Held      int64 `json:"held"`
	Cancelled int64 `json:"cancelled"`
	// OtherShards are inputs that this run has left to others; the rest is about the own shard.
	OtherShards int64 `json:"other_shards"`
}

type otherCounts struct {
	Done   int64 `json:"done"`
	Failed int64 `json:"failed"`
}

func (r *runner) summary(ctx context.Context, interrupted bool) (*summary, error) {
	t, d := r.tracker, r.adder
	held, next, err := r.left(ctx, interrupted)
	if err != nil {
		return nil, err
	}
	if err := r.explainDoubts(ctx); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &summary{Type: "summary", Ledger: r.ledger.address.String(), Kind: r.kind.name, Plugin: r.host.Definition(),
		Added: t.verdicts[ledger.VerdictAdded], Changed: t.verdicts[ledger.VerdictChanged], Reopened: t.verdicts[ledger.VerdictReopened],
		Known: t.verdicts[ledger.VerdictKnown], Differs: t.verdicts[ledger.VerdictDiffers],
		Inputs: inputCounts{Total: int64(len(t.inputs)), Done: t.counts[done], Skipped: t.counts[skipped], Dead: t.counts[dead], Doubt: t.counts[doubt],
			Waiting: t.counts[open] - held, Held: held, Cancelled: t.counts[cancelled], OtherShards: int64(len(t.theirs))},
		Others: otherCounts{t.others.done, t.others.failed}, Emitted: t.emitted, Sums: t.sums,
		NotTaken: orEmpty(d.notTaken), BadLines: orEmpty(d.badLines), Failures: t.failures.List(), Failing: r.failing.List(), NextDue: report.Time(next),
		Seconds: max(0.001, inSeconds(time.Since(r.began)))}
	var attempts int64
	for _, n := range t.ended {
		attempts += n
	}
	s.PerSecond = float64(int64(10*float64(attempts)/s.Seconds)) / 10
	switch in := s.Inputs; {
	case interrupted:
		s.Exit = 128 + int(r.app.got.Load())
	case in.Done+in.Skipped < in.Total || d.bad+d.missing > 0:
		s.Exit = exitUnfinished
	case in.Total+in.OtherShards == 0 && r.app.errorOnEmpty:
		s.Exit = exitEmpty
	}
	return s, nil
}

// left says how many of the inputs that have not ended are held by others, and when the next one
// is due. Who interrupted the run wants no more work done for that.
func (r *runner) left(ctx context.Context, interrupted bool) (held int64, next time.Time, err error) {
	if interrupted {
		return 0, next, nil
	}
	for ids := range slices.Chunk(r.tracker.opens(), page) {
		for it, err := range r.ledger.List(ctx, ledger.IDs(ids...), 0) {
			switch {
			case err != nil:
				return held, next, err
			case it.State == ledger.StateLeased:
				held++
			case it.RoundState == ledger.RoundOpen:
				next = earlier(next, it.Due)
				if it.Failures+it.Crashes > 0 {
					r.failing.Add(it.ID, it.Key, it.Code, it.Error)
					r.retryAt = earlier(r.retryAt, it.Due)
				}
			default:
				r.tracker.settle(it)
			}
		}
	}
	return held, next, nil
}

// earlier is the earlier one of two times, of which the first may be zero: not known yet.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// explainDoubts adds to the failures what was in doubt already when it was named.
func (r *runner) explainDoubts(ctx context.Context) error {
	for ids := range slices.Chunk(r.tracker.doubts, page) {
		for it, err := range r.ledger.List(ctx, ledger.IDs(ids...), 0) {
			if err != nil {
				return err
			}
			r.tracker.mu.Lock()
			r.tracker.failures.Add(it.ID, it.Key, it.Code, it.Error)
			r.tracker.mu.Unlock()
		}
	}
	return nil
}

// tell writes the report for people.
func (r *runner) tell(ctx context.Context, p *report.Printer, s *summary) error {
	t := r.tracker
	r.adder.complain(r.app)
	interrupted := r.app.got.Load() != 0
	if s.Inputs.Total+s.Inputs.OtherShards == 0 && !interrupted {
		if err := r.adder.nothing(r.app); err != nil {
			return err
		}
	}
	parts := []string{}
	if line := verdictLine(t.verdicts); line != "" {
		parts = append(parts, line)
	} else if r.adder.bad+r.adder.missing > 0 || s.Others != (otherCounts{}) {
		parts = append(parts, "added 0")
	}
	for _, c := range []struct {
		name string
		n    int64
	}{{"done", t.closed[done]}, {"skipped", t.closed[skipped]}, {"dead", s.Inputs.Dead}, {"doubt", s.Inputs.Doubt},
		{"cancelled", s.Inputs.Cancelled}, {"waiting", s.Inputs.Waiting}, {"held", s.Inputs.Held}, {"of other shards", s.Inputs.OtherShards}} {
		if c.n > 0 {
			parts = append(parts, c.name+" "+report.Count(c.n))
		}
	}
	parts = append(parts, s.Sums.parts()...)
	if len(parts) == 0 && s.Others == (otherCounts{}) {
		return nil
	}
	fmt.Fprintln(p.Out, strings.Join(append(parts, seconds(time.Since(r.began))), "   "))
	if err := p.Table(s.Failures, shortKey()); err != nil {
		return err
	}
	if len(s.Failing) > 0 {
		fmt.Fprintf(p.Out, "failed, and tried again later, the first at %s; sooner: ledgerd retry --where 'kind:%s state:waiting', then the same command\n", p.Local(r.retryAt), s.Kind)
		if err := p.Table(s.Failing, shortKey()); err != nil {
			return err
		}
	}
	if s.Differs > 0 {
		fmt.Fprintf(p.Out, "%s known with other settings (--set) and left so; --again does once more what is done, with these\n", plural(s.Differs, "input"))
	}
	if s.Others != (otherCounts{}) {
		fmt.Fprintf(p.Out, "other items of %s, from before: done %s   failed %s\n", s.Kind, report.Count(s.Others.Done), report.Count(s.Others.Failed))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Emitted)) {
		next := "work them: ledgerd work --drain --kind " + k
		if _, err := r.app.place(k, r.flags.dirs); err != nil && r.app.config.PluginOf(k) == "" {
			next = "take them: ledgerd claim " + k + " --agent YOU"
		}
		fmt.Fprintf(p.Out, "emitted: %s %s, known ones included   %s\n", report.Count(s.Emitted[k]), k, next)
	}
	if err := r.tellWaits(ctx, p, s); err != nil {
		return err
	}
	return r.tellNext(p, s, interrupted)
}

// tellWaits says who holds inputs that the run has waited for.
func (r *runner) tellWaits(ctx context.Context, p *report.Printer, s *summary) error {
	if s.Inputs.Held == 0 {
		return nil
	}
	holders, _, err := r.waits.holders(ctx)
	if line := waitsFor(p, holders); err == nil && line != "" {
		_, err = fmt.Fprintln(p.Out, line)
	}
	return err
}

// tellNext says what to do now.
func (r *runner) tellNext(p *report.Printer, s *summary, interrupted bool) error {
	open := s.Inputs.Waiting + s.Inputs.Held
	switch {
	case open > 0 && r.kind.policy.Paused:
		fmt.Fprintf(p.Out, "kind %s is paused: ledgerd kind resume %s", s.Kind, s.Kind)
	case open > 0:
		fmt.Fprintf(p.Out, "%s left: run the same command to go on", report.Count(open))
		if next := time.Time(s.NextDue); next.After(time.Now()) {
			fmt.Fprintf(p.Out, " (the next is due %s)", p.Local(next))
		}
	case s.Inputs.Doubt > 0:
		fmt.Fprintf(p.Out, "a person decides: ledgerd ls --state doubt, then ledgerd retry, finish or cancel")
	case s.Inputs.Dead > 0 && r.source.Template.Every != "":
		fmt.Fprintf(p.Out, "the next round tries again; in this one: ledgerd retry --kind %s, then the same command", s.Kind)
	case s.Inputs.Dead > 0:
		fmt.Fprintf(p.Out, "look closer: ledgerd ls --state dead")
	case s.Inputs.Cancelled > 0:
		fmt.Fprintf(p.Out, "cancelled before, and left so: ledgerd ls --where 'kind:%s state:cancelled'; to have one worked: ledgerd retry ID --again, then the same command", s.Kind)
	case r.adder.bad > 0:
		fmt.Fprintf(p.Out, "not taken: %s", plural(r.adder.bad, "bad line"))
	case r.adder.missing > 0:
		fmt.Fprintf(p.Out, "not taken: %s", plural(r.adder.missing, "pattern that matches nothing"))
	case s.Exit == exitOK || interrupted:
		return nil
	}
	_, err := fmt.Fprintf(p.Out, "    exit %d\n", s.Exit)
	return err
}

// shortKey shows paths as people typed them: from the working directory.
func shortKey() func(key string) string {
	cwd, err := os.Getwd()
	return func(key string) string {
		if err == nil && filepath.IsAbs(key) {
			if rel, err := filepath.Rel(cwd, key); err == nil && !strings.HasPrefix(rel, "..") {
				return rel
			}
		}
		return key
	}
}

// runRow is what run prints with -o jsonl and csv for each input that ends.
type runRow struct {
	Type    string         `json:"type"`
	ID      int64          `json:"id"`
	Key     string         `json:"key"`
	State   ledger.State   `json:"state"`
	Outcome ledger.Outcome `json:"outcome"`
	Attempt int64          `json:"attempt"`
	Code    string         `json:"code"`
	Error   string         `json:"error"`
	MS      float64        `json:"ms"`
	Output  report.Bytes   `json:"output"`
}

// rowWriter writes rows as they come, in a goroutine of its own: who reports them must not wait
// for a slow reader.
type rowWriter struct {
	rows *report.Rows[runRow] // nil where the format has no rows
	p    *report.Printer
	wake chan struct{}
	done chan struct{}
	// failed is closed when rows can be written no more.
	failed chan struct{}

	mu    sync.Mutex
	queue []runRow
	ended bool
	err   error
}

func newRowWriter(p *report.Printer, k *kind, t *tracker) (*rowWriter, error) {
	w := &rowWriter{p: p, wake: make(chan struct{}, 1), done: make(chan struct{}), failed: make(chan struct{})}
	if p.Format != report.JSONL && p.Format != report.CSV {
		close(w.done)
		return w, nil
	}
	columns := []string{"id", "key", "state", "outcome", "attempt", "code", "error", "ms"}
	for _, f := range k.plugin.Output.Fields() {
		columns = append(columns, "output."+f.Name)
	}
	var err error
	if w.rows, err = report.NewRows[runRow](p, nil, columns); err != nil {
		return nil, err
	}
	t.row = w.add
	go w.loop()
	return w, nil
}

// add queues the row of an input that ended.
func (w *rowWriter) add(e worker.Event) {
	w.mu.Lock()
	w.queue = append(w.queue, runRow{"item", e.Lease.ID, e.Lease.Key, e.State, e.Recorded, e.Lease.Attempt, e.Result.Code, e.Result.Error,
		float64(e.Worked.Microseconds()) / 1000, e.Result.Output})
	w.mu.Unlock()
	w.signal()
}

func (w *rowWriter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *rowWriter) loop() {
	defer close(w.done)
	for {
		<-w.wake
		w.mu.Lock()
		queue, ended, err := w.queue, w.ended, w.err
		w.queue = nil
		w.mu.Unlock()
		for i := 0; i < len(queue) && err == nil; i++ {
			if err = w.rows.Write(queue[i]); err != nil {
				close(w.failed)
			}
		}
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		if ended {
			return
		}
	}
}

// close writes what is left and says whether all could be written.
func (w *rowWriter) close() error {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.signal()
	<-w.done
	if w.rows == nil || w.err != nil {
		return w.err
	}
	return w.rows.Close()
}

// last closes and writes the summary as the last line.
func (w *rowWriter) last(s *summary) error {
	if err := w.close(); err != nil {
		return err
	}
	return w.p.Object(s)
}
