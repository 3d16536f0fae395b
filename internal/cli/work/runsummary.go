package work

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Summary is the summary of run as JSON. docs/cli.md describes its fields.
type Summary struct {
	Type      string            `json:"type"`
	Ledger    string            `json:"ledger"`
	Kind      string            `json:"kind"`
	Plugin    string            `json:"plugin"`
	Added     int64             `json:"added"`
	Changed   int64             `json:"changed"`
	Reopened  int64             `json:"reopened"`
	Known     int64             `json:"known"`
	Differs   int64             `json:"differs"`
	Inputs    inputCounts       `json:"inputs"`
	Others    otherCounts       `json:"others"`
	Emitted   map[string]int64  `json:"emitted"`
	NotTaken  []intake.NotTaken `json:"not_taken"`
	BadLines  []intake.BadLine  `json:"bad_lines"`
	Failures  []report.Failure  `json:"failures"`
	Failing   []report.Failure  `json:"failing"` // of inputs that are tried again
	Round     *roundNews        `json:"round"`   // null unless the inputs recur
	NextDue   report.Time       `json:"next_due"`
	Seconds   float64           `json:"seconds"`
	PerSecond float64           `json:"per_second"`
	Exit      int               `json:"exit"`
}

// inputCounts counts the inputs by how they stand.
type inputCounts struct {
	Total     int64 `json:"total"`
	Done      int64 `json:"done"`
	Skipped   int64 `json:"skipped"`
	Dead      int64 `json:"dead"`
	Doubt     int64 `json:"doubt"`
	Waiting   int64 `json:"waiting"`
	Held      int64 `json:"held"`
	Cancelled int64 `json:"cancelled"`
}

// otherCounts counts the attempts of this run on items that are no inputs.
type otherCounts struct {
	Done   int64 `json:"done"`
	Failed int64 `json:"failed"`
}

// summary makes the summary of the run, and chooses the exit code.
func (r *inputRun) summary(ctx context.Context, interrupted bool) (*Summary, error) {
	t, d := r.tracker, r.adder
	held, next, err := r.left(ctx, interrupted)
	if err != nil {
		return nil, err
	}
	if err := r.explainDoubts(ctx); err != nil {
		return nil, err
	}
	round, err := r.roundNews(ctx, interrupted)
	if err != nil {
		return nil, err
	}
	t.Mu.Lock()
	defer t.Mu.Unlock()
	s := &Summary{Type: "summary", Ledger: r.Ledger.Address.String(), Kind: r.Kind.Name, Plugin: r.host.Definition(),
		Added: t.Verdicts[ledger.VerdictAdded], Changed: t.Verdicts[ledger.VerdictChanged],
		Reopened: t.Verdicts[ledger.VerdictReopened], Known: t.Verdicts[ledger.VerdictKnown],
		Differs: t.Verdicts[ledger.VerdictDiffers],
		Inputs: inputCounts{Total: int64(len(t.Inputs)), Done: t.Counts[runner.Done], Skipped: t.Counts[runner.Skipped],
			Dead: t.Counts[runner.Dead], Doubt: t.Counts[runner.Doubt],
			Waiting: t.Counts[runner.Open] - held, Held: held, Cancelled: t.Counts[runner.Cancelled]},
		Others: otherCounts{t.Others.Done, t.Others.Failed}, Emitted: t.Emitted,
		NotTaken: report.OrEmpty(d.NotTaken), BadLines: report.OrEmpty(d.BadLines), Failures: t.Failures.List(),
		Failing: r.failing.List(), Round: round, NextDue: report.Time(next),
		Seconds: max(0.001, report.InSeconds(time.Since(r.began)))}
	var attempts int64
	for _, n := range t.Ended {
		attempts += n
	}
	s.PerSecond = float64(int64(10*float64(attempts)/s.Seconds)) / 10
	switch in := s.Inputs; {
	case interrupted:
		s.Exit = 128 + int(r.App.Got.Load())
	case in.Done+in.Skipped+in.Cancelled < in.Total || d.Bad+d.Wrong > 0:
		s.Exit = failure.ExitUnfinished
	case in.Total == 0 && r.App.ErrorOnEmpty:
		s.Exit = failure.ExitEmpty
	}
	return s, nil
}

// left returns how many of the open inputs are leased, and when the next one is due. It also sets r.failing and
// r.retryAt. After a signal it reads nothing, so that the program ends soon.
func (r *inputRun) left(ctx context.Context, interrupted bool) (held int64, next time.Time, err error) {
	if interrupted {
		return 0, next, nil
	}
	for ids := range slices.Chunk(r.tracker.OpenIDs(), page) {
		for it, err := range r.Ledger.List(ctx, ledger.IDs(ids...), 0) {
			switch {
			case err != nil:
				return held, next, err
			case it.State == ledger.StateLeased:
				held++
			case it.RoundState == ledger.RoundOpen:
				next = runner.Earliest(next, it.Due)
				if it.Failures+it.Crashes > 0 {
					r.failing.Add(it.ID, it.Key, it.Code, cmp.Or(it.Error, string(it.Outcome)))
					r.retryAt = runner.Earliest(r.retryAt, it.Due)
				}
			default:
				r.tracker.RecordState(it)
			}
		}
	}
	return held, next, nil
}

// explainDoubts adds to the failures the inputs that were in doubt when they were named.
func (r *inputRun) explainDoubts(ctx context.Context) error {
	for ids := range slices.Chunk(r.tracker.Doubts, page) {
		for it, err := range r.Ledger.List(ctx, ledger.IDs(ids...), 0) {
			if err != nil {
				return err
			}
			r.tracker.Mu.Lock()
			r.tracker.Failures.Add(it.ID, it.Key, it.Code, cmp.Or(it.Error, string(it.Outcome)))
			r.tracker.Mu.Unlock()
		}
	}
	return nil
}

// tell prints the summary for people.
func (r *inputRun) tell(ctx context.Context, p *report.Printer, s *Summary) error {
	t := r.tracker
	complain(r.App, r.adder)
	interrupted := r.App.Got.Load() != 0
	if s.Inputs.Total == 0 && !interrupted {
		if err := sayNothing(r.App, r.adder); err != nil {
			return err
		}
	}
	parts := []string{}
	if line := verdictLine(t.Verdicts); line != "" {
		parts = append(parts, line)
	} else if r.adder.Bad+r.adder.Wrong > 0 || s.Others != (otherCounts{}) {
		parts = append(parts, "added 0")
	}
	failed := "dead"
	if t.Recurs {
		failed = "failed"
	}
	for _, c := range []struct {
		name string
		n    int64
	}{{"done", t.EndedHere[runner.Done]}, {"skipped", t.EndedHere[runner.Skipped]}, {failed, s.Inputs.Dead},
		{"doubt", s.Inputs.Doubt}, {"cancelled", s.Inputs.Cancelled}, {"waiting", s.Inputs.Waiting},
		{"held", s.Inputs.Held}} {
		if c.n > 0 {
			parts = append(parts, c.name+" "+report.Count(c.n))
		}
	}
	if len(parts) == 0 && s.Others == (otherCounts{}) {
		return nil
	}
	fmt.Fprintln(p.Out, strings.Join(append(parts, report.Seconds(time.Since(r.began))), "   "))
	if err := p.Table(s.Failures, app.ShortKey()); err != nil {
		return err
	}
	if len(s.Failing) > 0 {
		r.App.Advise(p.Out, "failed, and tried again later, the first at %s; sooner: ledgerd retry --where 'kind:%s "+
			"state:waiting', then the same command\n", report.Local(r.retryAt), s.Kind)
		if err := p.Table(s.Failing, app.ShortKey()); err != nil {
			return err
		}
	}
	if s.Differs > 0 {
		fmt.Fprintf(p.Out, "%s known with settings of their own, which they keep; only with --again are they worked once "+
			"more, with the settings of this command\n", report.Plural(s.Differs, "input"))
	}
	sayCancelled(r.App, p.Out, s.Kind, r.adder.Cancelled)
	if s.Others != (otherCounts{}) {
		fmt.Fprintf(p.Out, "other items of %s: done %s   failed %s\n", s.Kind, report.Count(s.Others.Done),
			report.Count(s.Others.Failed))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Emitted)) {
		next := "work them: ledgerd work --drain --kind " + k
		if k == s.Kind {
			next = "those that are left: the same command"
		} else if _, err := r.App.Place(k); err != nil && r.App.Config.PluginOf(k) == "" {
			next = "take them: ledgerd claim " + k + " --agent YOU"
		}
		r.App.Advise(p.Out, "emitted: %s %s, known ones included   %s\n", report.Count(s.Emitted[k]), k, next)
	}
	if err := r.tellWaits(ctx, p, s); err != nil {
		return err
	}
	r.tellRound(p, s)
	return r.tellNext(p, s, interrupted)
}

// tellWaits names the agents that hold inputs for which the run has waited.
func (r *inputRun) tellWaits(ctx context.Context, p *report.Printer, s *Summary) error {
	if s.Inputs.Held == 0 {
		return nil
	}
	holders, _, err := r.waits.Waits.Holders(ctx)
	if line := holdersText(holders); err == nil && line != "" {
		r.App.Advise(p.Out, "%s\n", line)
	}
	return err
}

// tellNext prints what to do now, and the exit code.
func (r *inputRun) tellNext(p *report.Printer, s *Summary, interrupted bool) error {
	open := s.Inputs.Waiting + s.Inputs.Held
	switch {
	case open > 0 && r.Kind.Policy.Paused:
		r.App.Advise(p.Out, "kind %s is paused: ledgerd kind resume %s", s.Kind, s.Kind)
	case open > 0:
		fmt.Fprintf(p.Out, "%s left: run the same command to go on", report.Count(open))
		if next := time.Time(s.NextDue); next.After(time.Now()) {
			fmt.Fprintf(p.Out, " (the next is due %s)", report.Local(next))
		}
	case s.Inputs.Doubt > 0:
		r.App.Advise(p.Out, "a person decides: ledgerd ls --kind %s --state doubt, then ledgerd retry, finish or cancel",
			s.Kind)
	case s.Inputs.Dead > 0 && r.tracker.Recurs:
		r.App.Advise(p.Out, "look closer: ledgerd ls --where 'kind:%[1]s round:failed'   the next round tries again; in this "+
			"one: ledgerd retry --kind %[1]s, then the same command", s.Kind)
	case s.Inputs.Dead > 0:
		r.App.Advise(p.Out, "look closer: ledgerd ls --kind %s --state dead", s.Kind)
	case r.adder.Bad > 0:
		fmt.Fprintf(p.Out, "not taken: %s", report.Plural(r.adder.Bad, "bad line"))
	case r.adder.Wrong > 0:
		fmt.Fprintf(p.Out, "not taken: %s", report.Plural(r.adder.Wrong, "input"))
	case s.Exit == failure.ExitOK || interrupted:
		return nil
	}
	if s.Exit != failure.ExitOK {
		fmt.Fprintf(p.Out, "    exit %d", s.Exit)
	}
	_, err := fmt.Fprintln(p.Out)
	return err
}

// runRow is the row that run prints with -o jsonl and csv when an input ends.
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

// rowWriter writes rows in a goroutine of its own, so that a slow reader of stdout does not hold up the worker.
type rowWriter struct {
	rows   *report.Rows[runRow] // nil where the format has no rows
	p      *report.Printer
	wake   chan struct{} // signal: the queue or ended has changed
	done   chan struct{} // closed when the goroutine has ended
	failed chan struct{} // closed at the first error of a write

	mu    sync.Mutex
	queue []runRow
	ended bool // no more rows come
	err   error
}

// newRowWriter makes the tracker pass the row of each input that ends to a writer, if the format has rows.
func newRowWriter(p *report.Printer, k *kinds.Kind, t *runner.Tracker) (*rowWriter, error) {
	w := &rowWriter{p: p, wake: make(chan struct{}, 1), done: make(chan struct{}), failed: make(chan struct{})}
	if p.Format != report.JSONL && p.Format != report.CSV {
		close(w.done)
		return w, nil
	}
	columns := []string{"id", "key", "state", "outcome", "attempt", "code", "error", "ms"}
	for _, f := range k.Plugin.Output.Fields() {
		columns = append(columns, "output."+f.Name)
	}
	var err error
	if w.rows, err = report.NewRows[runRow](p, nil, columns); err != nil {
		return nil, err
	}
	t.Row = w.add
	go w.loop()
	return w, nil
}

// add queues the row of an input that ended.
func (w *rowWriter) add(e worker.Event) {
	w.mu.Lock()
	w.queue = append(w.queue, runRow{"item", e.Lease.ID, e.Lease.Key, e.State, e.Recorded, e.Lease.Attempt, e.Result.Code,
		e.Result.Error, float64(e.Worked.Microseconds()) / 1000, e.Result.Output})
	w.mu.Unlock()
	w.signal()
}

// signal wakes the goroutine.
func (w *rowWriter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// loop writes the queue until ended. After an error it only empties the queue.
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

// close writes the rows that are left, and returns the first error.
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

// last closes the writer and writes the summary as the last line.
func (w *rowWriter) last(s *Summary) error {
	if err := w.close(); err != nil {
		return err
	}
	return w.p.Object(s)
}
