package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// session is one process and the items that were given to it.
type session struct {
	host  *Host
	proc  *pluginproc.Proc
	work  *pluginproc.Session[given]
	setup *setup

	strays int // results for items that it does not have; only the stream's reader uses it

	// Only look uses these.
	fed    time.Time // when the process last had an item, or no item waited for credits
	warned bool      // that items have waited since fed
}

// isLogged reports whether the n-th equal message is logged: the first ten, then at powers of two. A plugin may
// cause millions.
func isLogged(n int) bool { return n <= 10 || n&(n-1) == 0 }

// task is an item for the process.
type task = pluginproc.Task[given]

// given is the part of a task that is for the host: the parameters of Handle.
type given struct {
	lease  *ledger.Lease
	settle func(ledger.Result)
}

// open opens the stream on a process. Tests pass a stream without a process.
func (s *session) open(p interface {
	Open(pluginproc.Events) (*pluginproc.Stream, error)
}) (err error) {
	s.work, err = pluginproc.OpenSession(p, pluginproc.SessionConfig[given]{Places: s.setup.places, Wait: s.setup.wait,
		Reason: reason, Settle: s.result, Report: s.report, Stray: s.stray})
	return err
}

// reason converts the cause of an item's context into the reason that is sent to the plugin.
func reason(cause error) wire.Cancel_Reason {
	switch {
	case errors.Is(cause, worker.ErrCancelled):
		return wire.Cancel_REASON_CANCELLED
	case errors.Is(cause, ledger.ErrLeaseLost):
		return wire.Cancel_REASON_LEASE_LOST
	}
	return wire.Cancel_REASON_STOPPING
}

// end settles a task with its result.
func (s *session) end(t *task, res ledger.Result) {
	if res.NoReport { // error and log may have lines of the process's stderr
		res.Error, res.Log = s.setup.hide.Hide(res.Error), s.setup.hide.Hide(res.Log)
	}
	res.Worker = s.setup.worker
	t.Of.settle(res)
}

func (s *session) result(t *task, r *wire.Result) {
	h := s.host
	h.mu.Lock()
	if h.session == s && r.Outcome != wire.Result_OUTCOME_RELEASED {
		h.breaker.worked()
	}
	h.mu.Unlock()
	s.end(t, s.setup.result(r, t))
}

func (s *session) stray(r *wire.Result) {
	if s.strays++; isLogged(s.strays) {
		s.host.log.Warn("the plugin reports on an item that it does not have", "item", r.Id, "attempt", r.Attempt, "times",
			s.strays)
	}
}

const maxUnit = wire.MaxKind // bytes of the unit of a report

func (s *session) report(t *task, p *wire.Progress) {
	if report := s.host.config.Progress; report != nil {
		unit := s.setup.hide.Hide(p.Unit)
		unit = strings.ToValidUTF8(unit[:min(len(unit), maxUnit)], "") // not half a letter
		report(Progress{ItemID: p.Id, Key: t.Item.Key, Done: p.Done, Total: p.Total, Unit: unit})
	}
}

// Why the host kills a process.
var (
	errFrozen  = errors.New("the plugin stopped answering and was killed")
	errOverrun = errors.New("the plugin did not end an item in time and was killed")
)

// tend watches the process until it has ended, then settles the items that it still had.
func (s *session) tend() {
	h := s.host
	why := s.watch()
	h.mu.Lock()
	h.session = nil // it gets no more items
	h.mu.Unlock()
	if why != nil {
		h.log.Error("the process of the plugin is killed", "error", why)
		s.proc.Kill() // results that have arrived are still used
	} else {
		why = s.proc.Err()
	}
	h.mu.Lock()
	doubtful := h.policy.OnLost == ledger.OnLostDoubt
	left := s.work.Left()
	crash, crashed := errors.AsType[*pluginproc.CrashError](why)
	switch {
	case crashed:
		h.crashed("crashed", crash)
	case errors.Is(why, errFrozen):
		h.crashed("frozen", why)
	}
	h.mu.Unlock()
	if crashed {
		h.log.Error("the process of the plugin died", "error", s.setup.hide.Error(crash), "items", len(left))
	}
	if pids := s.proc.Left(); len(pids) > 0 {
		h.log.Warn("killed processes that the plugin had started outside its process group", "pids", pids)
	}
	now := time.Now()
	for _, t := range left {
		s.end(t, h.leftBy(why, t, now, doubtful))
	}
}

// watch returns nil when the process has ended, or the reason to kill it.
func (s *session) watch() error {
	tick := time.Tick(s.host.times.tend)
	health := s.watchHealth()
	s.fed = time.Now()
	for {
		select {
		case <-s.proc.Done():
			return nil
		case <-health:
			return errFrozen
		case <-tick:
			if s.look(time.Now()) {
				return errOverrun
			}
		}
	}
}

// look ends items whose time is over, and reports whether an item overran: see Session.End. It warns of a plugin that
// grants no credits: nothing else would tell why no item ends.
func (s *session) look(now time.Time) (overrun bool) {
	unsent, overrun := s.work.End(s.host.times.overrun)
	s.release(unsent)
	switch n := s.work.Starved(); {
	case n == 0:
		s.fed, s.warned = now, false
	case !s.warned && now.Sub(s.fed) >= s.host.times.starved:
		s.warned = true
		s.host.log.Warn("the plugin grants no credits, so items wait", "items", n, "since", s.fed)
	}
	return overrun
}

// release settles items that were not sent to the process as released.
func (s *session) release(unsent []*task) {
	for _, t := range unsent {
		s.end(t, ledger.Release())
	}
}

// watchHealth pings the process regularly. The channel closes after times.healthMisses pings in a row without answer.
func (s *session) watchHealth() <-chan struct{} {
	frozen := make(chan struct{})
	times := s.host.times
	s.host.ends.Go(func() {
		tick := time.Tick(times.healthEvery)
		for misses := 0; misses < times.healthMisses; {
			select {
			case <-s.proc.Done():
				return
			case <-tick:
			}
			ctx, cancel := context.WithTimeout(context.Background(), times.healthWait)
			if err := s.proc.Ping(ctx); err != nil {
				misses++
			} else {
				misses = 0
			}
			cancel()
		}
		close(frozen)
	})
	return frozen
}

// leftBy is the result of an item that was still with the process when it ended. why is nil if the host stopped
// the process; doubtful means that the kind has on_lost = doubt.
func (h *Host) leftBy(why error, t *task, now time.Time, doubtful bool) ledger.Result {
	crash, crashed := errors.AsType[*pluginproc.CrashError](why)
	switch {
	case !t.Sent():
		return ledger.Release()
	case crashed:
		res := ledger.Crashed(crash.OfItem())
		res.Log = crash.Stderr
		return res
	case errors.Is(why, errFrozen):
		return ledger.Crashed(why.Error())
	case errors.Is(why, errOverrun) && t.TimedOut(now):
		res := ledger.Fail(fmt.Errorf("had passed its timeout of %s when its process was killed", t.Timeout))
		res.Code, res.NoReport = "timeout", true
		return res
	}
	// The item did not fail, but it may have taken effect.
	res := ledger.Result{Outcome: ledger.OutcomeReleased, Code: "killed", Error: "its process was stopped"}
	if doubtful {
		res.Outcome = ledger.OutcomeUnknown
	}
	switch {
	case t.Overran(now, h.times.overrun):
		res.Error = "it did not end when it was told to; its process was killed"
	case errors.Is(why, errOverrun):
		res.Error = "its process was killed because of another item"
	}
	return res
}
