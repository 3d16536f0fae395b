package sdktest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// plugin is a running plugin: a process (pluginproc.Proc), or a plugin in this process (local).
type plugin interface {
	Configure(context.Context, *wire.ConfigureRequest) ([]*wire.Problem, error)
	Open(pluginproc.Events) (*pluginproc.Stream, error)
	Stop(ctx context.Context, grace time.Duration) []int64
	Kill()
	Done() <-chan struct{}
	Err() error
}

// Host plays ledgerd for one plugin.
type Host struct {
	t       testing.TB
	sdk     *sdk.Plugin
	options Options
	d       *wire.DescribeResponse
	input   *settings.Schema
	config  []byte

	starts sync.Mutex // one start at a time
	mu     sync.Mutex
	plugin plugin // nil when a fault has ended it
	work   *pluginproc.Session[*delivery]
	last   int64 // id
}

// delivery is one item on its way.
type delivery struct {
	item     *wire.Item
	task     Task
	progress []Progress
	refused  bool              // its lease was lost by Fault LoseLease
	result   chan *wire.Result // holds one
	strike   chan struct{}     // closed when the fault's time has come
}

const (
	resultBound = time.Minute     // for a result
	orphanBound = 3 * time.Second // for a plugin to exit after the end of ledgerd
	slack       = 5               // factor of orphanBound, for slow machines
	stopGrace   = 5 * time.Second
	slowTime    = time.Second // of SlowAck
)

// New starts the plugin and stops it when the test ends; a config that the plugin refuses
// fails the test. The plugin comes from Main.
func New(t testing.TB, p *sdk.Plugin, o Options) *Host {
	t.Helper()
	h := prepare(t, p, o)
	h.start()
	t.Cleanup(h.stop)
	return h
}

// Refused starts the plugin with a config that it is to refuse, and returns why: the problems with their fields, or the
// error of Open. It returns nil if the plugin takes the config. A secret must not be in the error.
func Refused(t testing.TB, p *sdk.Plugin, o Options) error {
	t.Helper()
	h := prepare(t, p, o)
	defer h.stop()
	return h.launch()
}

// prepare returns a host that has not started its plugin.
func prepare(t testing.TB, p *sdk.Plugin, o Options) *Host {
	t.Helper()
	h := &Host{t: t, sdk: p, options: o}
	d, err := describe(p)
	must.OK(t, err)
	h.d = d
	h.input, err = settings.Compile(d.InputSchema)
	must.OK(t, err)
	h.config, err = configOf(d, o)
	must.OK(t, err)
	return h
}

func describe(p *sdk.Plugin) (*wire.DescribeResponse, error) {
	return sdk.Processor(p).Describe(context.Background(), &wire.DescribeRequest{})
}

func configOf(d *wire.DescribeResponse, o Options) ([]byte, error) {
	schema, err := settings.Compile(d.ConfigSchema)
	if err != nil {
		return nil, err
	}
	return schema.Marshal(o.Config)
}

// start starts the plugin, or another one after a fault.
func (h *Host) start() {
	h.t.Helper()
	if err := h.launch(); err != nil {
		h.t.Fatalf("%v\ngive it what it needs in Options.Config and Options.Secrets", err)
	}
}

// running returns the plugin and its session. It starts another plugin if a fault has ended the former one. Tasks that
// are run together start one.
func (h *Host) running() (plugin, *pluginproc.Session[*delivery]) {
	h.t.Helper()
	h.starts.Lock()
	defer h.starts.Unlock()
	h.mu.Lock()
	p, work := h.plugin, h.work // the fault of another task may end it as soon as mu is free
	h.mu.Unlock()
	if p == nil {
		h.start() // no task has this one yet, so none ends it
		h.mu.Lock()
		p, work = h.plugin, h.work
		h.mu.Unlock()
	}
	return p, work
}

// launch starts the plugin; the error tells why it does not take its config.
func (h *Host) launch() error {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), resultBound)
	defer cancel()
	p, err := h.open(ctx)
	must.OK(h.t, err)
	problems, err := p.Configure(ctx, &wire.ConfigureRequest{Config: h.config, Secrets: h.options.Secrets, ProgressMs: -1,
		Concurrency: h.d.Concurrency})
	switch {
	case err != nil:
		err = fmt.Errorf("the plugin fails while it is configured with %s: %w", h.config, err)
	case len(problems) > 0:
		err = fmt.Errorf("the plugin refuses the config %s: %s", h.config, wire.ProblemText(problems))
	}
	if err != nil {
		p.Kill()
		return err
	}
	work, err := pluginproc.OpenSession(p, pluginproc.SessionConfig[*delivery]{
		Settle: h.settle, Report: h.progress, Stray: func(r *wire.Result) {
			h.t.Errorf("the plugin sent a second result of item %d, or one of an item that it does not have", r.Id)
		}})
	if err != nil {
		p.Kill()
		h.t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.plugin, h.work = p, work
	return nil
}

func (h *Host) open(ctx context.Context) (plugin, error) {
	h.t.Helper()
	if h.options.InProcess {
		return startLocal(h.sdk)
	}
	spec := self(h.t)
	spec.OnLog = func(source, line string) { h.t.Logf("%s of the plugin: %s", source, line) }
	return pluginproc.Start(ctx, spec)
}

// stop ends the plugin with the test.
func (h *Host) stop() {
	h.mu.Lock()
	p := h.plugin
	h.mu.Unlock()
	if p != nil {
		p.Stop(context.Background(), stopGrace)
	}
}

// Run works one task and fails the test if no result comes within a minute. It may be called
// from several goroutines of the test.
func (h *Host) Run(t Task) Result {
	h.t.Helper()
	if h.options.InProcess && (t.Fault == KillPlugin || t.Fault == KillHost) {
		h.t.Fatal("sdktest: a plugin in the test's own process cannot be killed; leave out InProcess")
	}
	it, err := h.item(t)
	must.OK(h.t, err)
	r := h.deliver(t, it)
	if t.Fault == Deliver2 {
		it.Attempt++
		t.Fault = None
		r = h.deliver(t, it)
	}
	return r
}

// RunAll works tasks at the same time, so that a plugin with batches gets them together. The results are in the order
// of the tasks.
func (h *Host) RunAll(tasks ...Task) []Result {
	h.t.Helper()
	results := make([]Result, len(tasks))
	h.mu.Lock()
	for _, t := range tasks {
		h.last = max(h.last, t.ID) // before others are chosen
	}
	h.mu.Unlock()
	var all sync.WaitGroup
	for i, t := range tasks {
		all.Go(func() { results[i] = h.Run(t) })
	}
	all.Wait()
	if slices.ContainsFunc(results, func(r Result) bool { return r.Outcome == "" }) { // its Run has failed the test
		h.t.FailNow()
	}
	return results
}

// item makes the item as ledgerd would.
func (h *Host) item(t Task) (*wire.Item, error) {
	payload, err := h.input.Marshal(t.Payload)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	h.mu.Lock()
	h.last = max(h.last+1, t.ID)
	id := cmp.Or(t.ID, h.last)
	h.mu.Unlock()
	key := t.Key
	if key == "" && h.d.Input != nil {
		var fields map[string]any
		if json.Unmarshal(payload, &fields) == nil {
			key, _ = fields[h.d.Input.Field].(string)
		}
	}
	if key == "" {
		key = fmt.Sprint(id)
	}
	timeout := h.d.TimeoutMs
	if t.Timeout > 0 {
		timeout = max(1, t.Timeout.Milliseconds())
	}
	var previous []byte
	if t.Previous != nil && slices.Contains(h.d.Features, wire.FeaturePrevious) {
		if previous, err = json.Marshal(t.Previous); err != nil {
			return nil, fmt.Errorf("previous: %w", err)
		}
	}
	return &wire.Item{
		Id: id, Attempt: max(t.Attempt, 1), Kind: h.d.Name, Key: key,
		IdempotencyKey: fmt.Sprintf("%s//%s/%s", h.d.Name, key, cmp.Or(t.Round, "1")),
		Payload:        payload, Previous: previous, LockId: fmt.Appendf(nil, "lock-%d", id), TimeoutMs: timeout,
		Traceparent: t.Traceparent, Tracestate: t.Tracestate,
	}, nil
}

// deliver sends an item, makes the fault of its task happen, and returns the result.
func (h *Host) deliver(t Task, it *wire.Item) Result {
	h.t.Helper()
	p, work := h.running()
	d := &delivery{item: it, task: t, result: make(chan *wire.Result, 1), strike: make(chan struct{})}
	ctx, cancel := context.WithTimeout(h.t.Context(), resultBound)
	defer cancel()
	sent := &pluginproc.Task[*delivery]{Of: d, Item: it}
	work.Add(sent)
	if _, err := work.Wait(ctx, (*pluginproc.Task[*delivery]).Sent, sent); err != nil {
		h.mu.Lock()
		replaced := h.plugin != p // after the fault of another task
		h.mu.Unlock()
		if replaced && errors.Is(err, pluginproc.ErrEnded) {
			return h.deliver(t, it)
		}
		h.t.Fatalf("the plugin takes no items: %v", err)
	}
	if t.Fault != None && t.AtProgress == 0 {
		close(d.strike)
	}
	strike := d.strike
	for {
		select {
		case <-strike:
			strike = nil
			if r, final := h.strike(p, work.Stream, d); final {
				return r
			}
		case r := <-d.result:
			return h.resultOf(d, r)
		case <-p.Done():
			select {
			case r := <-d.result: // it was sent before the end
				return h.resultOf(d, r)
			default:
			}
			h.forget(p)
			return h.crashed(d, p.Err())
		case <-ctx.Done():
			h.t.Fatalf("no result of item %q within %v: does the function wait for something that does not come, or not look "+
				"at its context?", it.Key, resultBound)
		}
	}
}

// strike makes the fault happen; final means that there will be no result.
func (h *Host) strike(p plugin, stream *pluginproc.Stream, d *delivery) (r Result, final bool) {
	h.t.Helper()
	switch d.task.Fault {
	case Cancel:
		stream.Cancel(d.item.Id, d.item.Attempt, wire.Cancel_REASON_CANCELLED)
	case LoseLease:
		h.mu.Lock()
		d.refused = true
		h.mu.Unlock()
		stream.Cancel(d.item.Id, d.item.Attempt, wire.Cancel_REASON_LEASE_LOST)
	case KillPlugin:
		h.forget(p)
		p.Kill()
		return h.crashed(d, nil), true
	case KillHost:
		h.forget(p)
		p.(*pluginproc.Proc).HangUp() // Run refuses this fault InProcess
		select {
		case <-p.Done():
		case <-time.After(slack * orphanBound):
			p.Kill()
			h.t.Error("the plugin lives on without ledgerd: it must be gone within 3 s")
		}
		r := h.crashed(d, nil)
		r.Outcome = "lost"
		return r, true
	case None, Deliver2, SlowAck: // Run and settle see to these
	}
	return Result{}, false
}

// forget has the next task start another plugin.
func (h *Host) forget(p plugin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plugin == p {
		h.plugin = nil
	}
}

func (h *Host) crashed(d *delivery, end error) Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Result{Outcome: "crashed", Progress: d.progress}
	if end != nil {
		r.Error = end.Error()
	}
	return r
}

// dawdle blocks the goroutine that reads the stream for slowTime, so that nothing is taken from the plugin.
func (h *Host) dawdle() {
	select {
	case <-time.After(slowTime):
	case <-h.t.Context().Done(): // the test is over
	}
}

// settle takes a result from the session.
func (h *Host) settle(t *pluginproc.Task[*delivery], r *wire.Result) {
	if t.Of.task.Fault == SlowAck && t.Of.task.AtProgress == 0 {
		h.dawdle()
	}
	t.Of.result <- r
}

// progress takes a report from the session.
func (h *Host) progress(t *pluginproc.Task[*delivery], p *wire.Progress) {
	d := t.Of
	h.mu.Lock()
	d.progress = append(d.progress, Progress{p.Done, p.Total, p.Unit})
	strikes := d.task.Fault != None && len(d.progress) == d.task.AtProgress
	h.mu.Unlock()
	if strikes {
		close(d.strike)
		if d.task.Fault == SlowAck {
			h.dawdle()
		}
	}
}

func (h *Host) resultOf(d *delivery, w *wire.Result) Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	delay := time.Duration(min(w.DelayMs, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	r := Result{
		Outcome: strings.ToLower(strings.TrimPrefix(w.Outcome.String(), "OUTCOME_")),
		Final:   w.Final, Delay: delay, AtMost: int(w.AtMost),
		Code: w.Code, Error: w.Error,
		Output: w.Output, Progress: d.progress, Refused: d.refused,
	}
	for line := range strings.Lines(w.Log) {
		r.Log = append(r.Log, strings.TrimSuffix(line, "\n"))
	}
	for _, c := range w.Emit {
		child := sdk.Child{Kind: c.Kind, Scope: c.Scope, Key: c.Key, Fingerprint: c.Fingerprint, Priority: int(c.Priority)}
		if c.Payload != nil {
			child.Payload = json.RawMessage(c.Payload)
		}
		if c.DueUs != 0 {
			child.Due = time.UnixMicro(c.DueUs).UTC()
		}
		r.Emitted = append(r.Emitted, child)
	}
	return r
}
