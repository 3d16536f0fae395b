package worker

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/ledger"
)

const (
	finishMost  = 1000    // endings of one call
	finishBytes = 8 << 20 // of outputs and emitted items in one call, roughly
	finishFull  = 500     // pending endings for which the second loop makes a call
)

// finisher records the ends of tasks, in batches. Of its two loops the first always takes all pending tasks. So an end
// is recorded at once when there is little to do, and batches grow when there is much. The second loop helps when
// finishFull tasks are pending during a call of the first.
type finisher struct {
	worker *Worker

	mu      sync.Mutex
	more    *sync.Cond
	pending []*task
	closed  bool
}

func newFinisher(w *Worker) *finisher {
	f := &finisher{worker: w}
	f.more = sync.NewCond(&f.mu)
	return f
}

// add queues tasks that have ended.
func (f *finisher) add(tasks ...*task) {
	if len(tasks) == 0 {
		return
	}
	f.mu.Lock()
	before := len(f.pending)
	f.pending = append(f.pending, tasks...)
	if before == 0 || before < finishFull && len(f.pending) >= finishFull {
		f.more.Broadcast()
	}
	f.mu.Unlock()
}

// close makes the loops end when no task is pending.
func (f *finisher) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.more.Broadcast()
}

// loop finishes batches of at least atLeast tasks until close. Its calls end with life.
func (f *finisher) loop(life context.Context, atLeast int) {
	for {
		batch := f.take(atLeast)
		if batch == nil {
			return
		}
		f.finish(life, batch)
	}
}

// take waits for a batch; it returns nil at the end.
func (f *finisher) take(atLeast int) []*task {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.pending) < atLeast {
		if f.closed {
			return nil
		}
		f.more.Wait()
	}
	n, bytes := 0, 0
	for n < min(len(f.pending), finishMost) && (n == 0 || bytes < finishBytes) {
		bytes += sizeOf(&f.pending[n].result)
		n++
	}
	batch := f.pending[:n:n]
	f.pending = f.pending[n:]
	return batch
}

func sizeOf(r *ledger.Result) int {
	n := len(r.Output) + len(r.Log)
	for i := range r.Emit {
		n += len(r.Emit[i].Payload) + len(r.Emit[i].Key)
	}
	return n
}

// finish records the ends of a batch. It repeats while the ledger is unavailable, also after the leases have expired:
// the ledger takes a late end unless another agent was granted the item.
func (f *finisher) finish(life context.Context, batch []*task) {
	var pause backoff
	for len(batch) > 0 {
		endings := endingsOf(batch)
		failpoint.Here("worker.settled")
		errs := f.worker.config.Ledger.Finish(life, endings...)
		failpoint.Here("worker.recorded")
		var err error
		batch, err = f.sort(life, batch, endings, errs)
		if f.worker.failed("finish", err) && !sleep(life, pause.next()) {
			for _, t := range batch {
				f.worker.record(t, ledger.Ending{Lease: t.lease, Result: t.result}, err)
			}
			return
		}
	}
}

func endingsOf(batch []*task) []ledger.Ending {
	endings := make([]ledger.Ending, len(batch))
	for i, t := range batch {
		endings[i] = ledger.Ending{Lease: t.lease, Result: t.result}
	}
	return endings
}

// sort handles the answer for each ending, and returns the tasks to try again. failed is the error if the ledger
// failed; nil if it only refused the contents of endings.
func (f *finisher) sort(life context.Context, batch []*task, endings []ledger.Ending, errs []error) (again []*task,
	failed error) {
	for i, t := range batch {
		err := errs[i]
		_, invalid := errors.AsType[*ledger.InvalidError](err) // others of its kind are about the database: see fatal
		switch {
		case err == nil, errors.Is(err, ledger.ErrLeaseLost):
			f.worker.record(t, endings[i], err)
		case !invalid && (errors.Is(err, ledger.ErrUnavailable) || fatal(err) || life.Err() != nil):
			again = append(again, t)
			failed = cmp.Or(failed, err)
		case !invalid && len(batch) > 1: // any ending of the batch may be the reason
			f.finish(life, batch[i:i+1:i+1])
		case !invalid && !t.plain:
			t.result, t.plain = plain(t.result, err), true
			again = append(again, t)
		case !t.refused || t.result.Log != "":
			log := t.result.Log
			if t.refused { // the log may be what is refused
				log = ""
			}
			t.refused = true
			t.result = ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: CodeInvalid, Error: err.Error(),
				Log: log, Worker: t.result.Worker}
			again = append(again, t)
		default:
			f.worker.record(t, endings[i], err)
		}
	}
	return again, failed
}

// plain returns a result without output, log and error text, because the database refused these. The item still ends
// with the outcome, since its work was done.
func plain(r ledger.Result, refused error) ledger.Result {
	r.Output, r.Log, r.AtMost = nil, "", 0
	r.Error = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, "recorded without output, log and reason, as the database refused them: "+refused.Error())
	return r
}

// CodeInvalid is the code of a failure whose result broke a limit. If this is refused, too, the
// worker reports it once more without the log.
const CodeInvalid = "invalid_result"
