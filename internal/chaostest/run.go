//go:build unix

package chaostest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/internal/historytest"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
	"github.com/ledgerd/ledgerd/internal/recorder"
	"github.com/ledgerd/ledgerd/ledger"
)

// run is a run in progress.
type run struct {
	campaign *Campaign
	plan     Plan
	name     string
	dir      string

	address string           // of the ledger, for daemons
	file    string           // of the ledger on SQLite
	server  *cluster.Cluster // on Postgres
	pair    *pair            // of servers, in runs with failovers
	moved   []float64        // for each failover, seconds from the end of the primary until an add was acknowledged
	admin   *pgxpool.Pool    // on the server, for faults
	proxy   *proxy
	remote  *remoteLedger // of runs over HTTP
	hogs    *sql.DB       // takes the write lock of a ledger on SQLite, in runs with Hog; nil before the first time
	offset  atomic.Int64  // error of the clock for a ledger on SQLite, nanoseconds

	history *history.Log // of the clients below, in this process
	store   ledger.Store
	client  *ledger.Ledger
	other   *ledger.Ledger // of runs with failovers: a second client, over another store

	daemons   []*daemon
	processes int // started so far
	logs      []*os.File
	ended     []ending
	frozen    map[int]int64 // process → since when, CLOCK_MONOTONIC
	waking    sync.WaitGroup
	driving   sync.WaitGroup // of agents
	calmed    atomic.Bool    // the faults have stopped, and agents claim nothing more
	faulted   map[string]int // name of a fault → how often it happened
	drains    []historytest.Drain
	mu        sync.Mutex
	unkept    []historytest.Violation // broken promises of bounded time
	closers   []func() error
}

// ending records that a process was killed, died or was frozen.
type ending struct {
	Agent  string // its name; see daemon.name
	At     int64  // CLOCK_MONOTONIC
	Paused bool
}

// Promises of bounded time after the faults.
const (
	calmTime    = 60 * time.Second // for all items to end: the remaining work and two leases
	grace       = 5 * time.Second  // that daemons give to running items
	stopTime    = grace + 5*time.Second
	recoverTime = 5 * time.Second // for the items of a dead worker to be taken back after their lease
)

// The promises of bounded time, by their names in docs/reliability.md.
const (
	takeBackInTime = "L2"
	drainInTime    = "L4"
	stopInTime     = "L6"
)

// bound returns the time that this run allows for a promised time.
func (p Plan) bound(d time.Duration) time.Duration { return d * time.Duration(max(1, p.Patience)) }

func (r *run) path(name string) string { return filepath.Join(r.dir, name) }

func (r *run) count(f Fault) { r.faulted[string(f)]++ }

// Run makes one run in its own folder, and judges it.
func (c *Campaign) Run(ctx context.Context, p Plan) (res Result, err error) {
	r := &run{campaign: c, plan: p, name: p.String(), frozen: map[int]int64{}, faulted: map[string]int{}}
	r.dir = filepath.Join(c.Dir, r.name)
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return Result{}, err
	}
	began := time.Now()
	err = r.execute(ctx)
	for i := len(r.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, r.closers[i]())
	}
	for _, l := range r.logs {
		l.Close()
	}
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w (what it left is in %s)", r.name, err, r.dir)
	}
	res, err = Judge(r.dir)
	res.Seconds = time.Since(began).Seconds()
	if err == nil && len(res.Violations) == 0 {
		err = os.RemoveAll(r.dir)
	}
	return res, err
}

// execute makes the run, from the creation of its ledger to the audit of its rows.
func (r *run) execute(ctx context.Context) (err error) {
	if err := r.open(ctx); err != nil {
		return err
	}
	defer r.killAll()
	if err := r.begin(ctx); err != nil {
		return err
	}
	if r.plan.Fault.remote() {
		if err := r.startRemote(); err != nil {
			return err
		}
	}
	random := r.plan.random(forDaemons)
	for slot := range r.plan.Daemons {
		d, err := r.start(slot, r.env(random)...)
		if err != nil {
			return err
		}
		r.daemons = append(r.daemons, d)
	}
	r.awaitWork(ctx, random)
	busy, end := context.WithTimeout(ctx, r.plan.Busy)
	defer end()
	g, busy := errgroup.WithContext(busy)
	g.Go(func() error { return r.feed(busy) })
	g.Go(func() error { return r.visit(busy) })
	g.Go(func() error { return r.operator(busy) })
	g.Go(func() error { return r.faults(busy) })
	if err := g.Wait(); err != nil {
		return err
	}
	if err := r.calm(ctx); err != nil {
		return err
	}
	r.killAll() // if a drain failed, processes still work: what they did after the audit would look like lost calls
	return r.saveEvidence(ctx)
}

// killAll kills the processes that still run.
func (r *run) killAll() {
	all := r.daemons
	if r.remote != nil && r.remote.api != nil {
		all = append(all, r.remote.api)
	}
	for _, d := range all {
		if d != nil { // nil if it did not start
			d.signal(syscall.SIGKILL)
			<-d.exited
		}
	}
}

// awaitWork waits until a daemon holds a lease: before that, a fault would hit nothing. It waits 5 s at most.
func (r *run) awaitWork(ctx context.Context, random *rand.Rand) {
	ctx, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	for ctx.Err() == nil && r.busy(ctx, random) < 0 {
		sleep(ctx, 50*time.Millisecond)
	}
}

// begin sets the policies and adds the first items.
func (r *run) begin(ctx context.Context) error {
	for _, k := range r.plan.Kinds {
		policy := ledger.Kind{Name: k, MaxFailures: 50, MaxCrashes: 50, MaxLost: 1000,
			Backoff: ledger.Backoff{Base: 50 * time.Millisecond, Cap: 500 * time.Millisecond}}
		if k == onceKind {
			policy.OnLost = ledger.OnLostDoubt
		}
		if r.plan.Fault == Plugin {
			policy.Timeout = 1500 * time.Millisecond
		}
		if err := r.client.SetKind(ctx, "harness", policy); err != nil {
			return err
		}
	}
	random := r.plan.random(forFirstItems)
	var items []ledger.NewItem
	for n := range first {
		items = append(items, r.item(random, n))
	}
	for _, mode := range modesOf(r.plan) {
		r.faulted[modePrefix+mode]++
		items = append(items, misfit(mode))
	}
	_, err := r.client.Add(ctx, items...)
	return err
}

// calm ends the faults. Then all items must end, a drain must report that, and daemons must stop when they are told
// to.
func (r *run) calm(ctx context.Context) error {
	if err := r.endFaults(); err != nil {
		return err
	}
	// No run waits for people: the items that a person still holds are released.
	if _, err := r.client.ForceRelease(ctx, "operator", ledger.Filter{Agents: []string{person},
		States: []ledger.State{ledger.StateLeased}}); err != nil {
		return err
	}
	if r.plan.Fault == Agents {
		if err := r.leasesOver(ctx); err != nil {
			return err
		}
	}
	if drained, err := r.drainAll(ctx); err != nil || !drained {
		return err
	}
	for _, d := range r.daemons {
		err := d.stop(r.plan.bound(stopTime))
		if errors.Is(err, errEarly) && (r.remote != nil || r.plan.Fault == Plugin) {
			continue // a cut of its first request or its plugin ended it
		}
		if err != nil {
			r.late(stopInTime, err)
		}
	}
	if r.remote != nil {
		r.endRemote(ctx)
	}
	for v, err := range r.client.Verify(ctx) {
		if err != nil {
			return err
		}
		r.unkept = append(r.unkept, historytest.Violation{Rule: "verify " + v.Rule, Item: v.ItemID, Text: v.Text})
	}
	return nil
}

// endFaults stops what disturbs the processes, and replaces daemons that have ended.
func (r *run) endFaults() error {
	r.waking.Wait()
	r.calmed.Store(true)
	r.driving.Wait()
	if r.proxy != nil {
		r.proxy.next.Store(cutNowhere)
	}
	if r.remote != nil {
		r.remote.wire.calm.Store(true)
		r.remote.api.signal(syscall.SIGCONT)
	}
	for slot, d := range r.daemons {
		d.signal(syscall.SIGCONT)
		if r.plan.Fault == Failpoint || r.plan.Fault == Plugin { // they may still die, or have stopped using their plugin
			if err := d.stop(r.plan.bound(stopTime)); errors.Is(err, errTimeout) {
				r.late(stopInTime, err)
			}
			r.ended = append(r.ended, ending{Agent: d.name(), At: history.Now()})
		}
		if d.gone() {
			if err := r.replace(slot); err != nil {
				return err
			}
		}
	}
	return nil
}

// drainTurns bounds the number of drains. A decision may make a newer version of an item ready, so one is not enough.
const drainTurns = 5

// drainAll drains the ledger and decides items in doubt until nothing is left. If that does not happen it records a
// broken promise and returns false.
func (r *run) drainAll(ctx context.Context) (drained bool, err error) {
	for range drainTurns {
		err := r.drain()
		for r.plan.Fault == Plugin && errors.Is(err, errKilled) { // by a plugin
			err = r.drain()
		}
		if err != nil {
			r.late(drainInTime, err)
			return false, nil
		}
		if more, err := r.decide(ctx); err != nil || !more {
			return true, err
		}
	}
	r.late(drainInTime, fmt.Errorf("items were still open after %d drains", drainTurns))
	return false, nil
}

// errKilled means that a process was killed after the faults.
var errKilled = errors.New("a drain was killed")

// late records a broken promise.
func (r *run) late(rule string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unkept = append(r.unkept, historytest.Violation{Rule: rule, Text: err.Error()})
}

// drain runs a worker that ends when no item is left.
func (r *run) drain() error {
	const patience = 3 * time.Second
	args := []string{"work", "--drain", "--wait", patience.String(), "--lease",
		max(r.plan.Lease, 5*time.Second).String()} // the least that work accepts
	for _, k := range r.plan.Kinds {
		args = append(args, "--kind", k)
	}
	cmd, err := r.command(0, nil, args...)
	if err != nil {
		return err
	}
	called := history.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(r.plan.bound(calmTime), func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
	err = cmd.Wait()
	if !late.Stop() {
		return fmt.Errorf("a drain did not end within %v", r.plan.bound(calmTime))
	}
	if state := cmd.ProcessState.Sys().(syscall.WaitStatus); state.Signaled() && state.Signal() == syscall.SIGKILL {
		r.ended = append(r.ended, ending{Agent: strconv.Itoa(cmd.Process.Pid), At: history.Now()})
		return errKilled
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 { // 3: some items did not end as done
		return fmt.Errorf("a drain ended with %w", err)
	}
	r.drains = append(r.drains, historytest.Drain{Kinds: r.plan.Kinds, Called: called, Returned: history.Now(),
		Patience: patience.Microseconds()})
	return nil
}

// decide decides all items in doubt as done or cancelled, as a person would. more means that items are open again, such
// as a newer version of an item.
func (r *run) decide(ctx context.Context) (more bool, err error) {
	random := r.plan.random(forDecisions)
	for it, err := range r.client.List(ctx, ledger.Filter{States: []ledger.State{ledger.StateDoubt}}, 0) {
		if err != nil {
			return false, err
		}
		outcome := []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeCancelled}[random.IntN(2)]
		if err := r.client.Decide(ctx, it.ID, "operator", ledger.Result{Outcome: outcome}); err != nil &&
			!errors.Is(err, ledger.ErrConflict) {
			return false, err
		}
	}
	open := ledger.Filter{States: []ledger.State{ledger.StateWaiting, ledger.StateReady, ledger.StateLeased,
		ledger.StateDoubt}}
	n, err := r.client.Count(ctx, open)
	return n > 0, err
}

// open makes the ledger of the run and prepares its faults.
func (r *run) open(ctx context.Context) error {
	if err := r.place(ctx); err != nil {
		return err
	}
	var err error
	if r.history, err = history.Open(r.path("history-client")); err != nil {
		return err
	}
	r.closers = append(r.closers, r.history.Close)
	if r.store, err = r.connect(ctx); err != nil {
		return err
	}
	r.store = recorder.New(r.store, r.history)
	r.client = ledger.New(r.store, ledger.Options{})
	r.closers = append(r.closers, r.client.Close)
	if r.pair == nil {
		return nil
	}
	other, err := r.connect(ctx)
	if err != nil {
		return err
	}
	r.other = ledger.New(recorder.New(other, r.history), ledger.Options{})
	r.closers = append(r.closers, r.other.Close)
	return nil
}

// evidence is what Judge reads about a run, beside the histories and effects.
type evidence struct {
	Plan    Plan
	Ended   []ending
	Faulted map[string]int
	Drains  []historytest.Drain
	Unkept  []historytest.Violation
	Items   []ledger.Audited
	Moved   []float64 // see run
	Offset  int64     // of the database's clock to CLOCK_MONOTONIC, microseconds
}

// evidenceFile is the name of the file with the evidence.
const evidenceFile = "evidence.json"

// saveEvidence writes the evidence.
func (r *run) saveEvidence(ctx context.Context) error {
	l := evidence{Plan: r.plan, Ended: r.ended, Faulted: r.faulted, Drains: r.drains, Unkept: r.unkept,
		Moved: r.moved}
	if r.proxy != nil {
		l.Faulted[string(Cut)] = int(r.proxy.cuts.Load())
	}
	if r.plan.Fault == RemoteCut {
		l.Faulted[string(RemoteCut)] = int(r.remote.wire.cuts.Load())
	}
	var err error
	if l.Items, err = auditAll(ctx, r.store); err != nil {
		return err
	}
	before := history.Now()
	now, err := r.store.Now(ctx)
	if err != nil {
		return err
	}
	middle := (before + history.Now()) / 2 // of the call, nanoseconds
	l.Offset = now.UnixMicro() - middle/1000
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(evidenceFile), text, 0o600)
}

// auditAll reads all rows of a ledger.
func auditAll(ctx context.Context, s ledger.Store) (all []ledger.Audited, err error) {
	var after int64
	for {
		page, err := s.Audit(ctx, after, 1000)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		after = page[len(page)-1].ID
	}
}

// tcp returns the address of a server on this machine.
func tcp(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
