package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// session is a started plugin and what came from it.
type session struct {
	*pluginproc.Proc
	d      *wire.DescribeResponse
	target Target
	state  state
	items  *pluginproc.Session[struct{}]
	stream *pluginproc.Stream // of items
	last   int64              // the highest id of an item
	tasks  map[int64]*task    // the newest of each item

	mu       sync.Mutex
	strays   map[int64][]*wire.Result // beside the results of tasks, by item
	progress []*wire.Progress
	output   capped
}

type task = pluginproc.Task[struct{}]

// begin starts a plugin and has it describe itself.
func (t Target) begin(ctx context.Context) (*session, error) {
	s := &session{target: t, tasks: map[int64]*task{}, strays: map[int64][]*wire.Result{}}
	spec := t.Spec
	spec.OnLog = func(source, line string) {
		s.mu.Lock()
		fmt.Fprintln(&s.output, line)
		s.mu.Unlock()
		if t.Spec.OnLog != nil {
			t.Spec.OnLog(source, line)
		}
	}
	var err error
	if s.Proc, err = pluginproc.Start(ctx, spec); err != nil {
		return nil, err
	}
	if s.d, err = s.Describe(ctx, &wire.DescribeRequest{}); err != nil {
		s.Kill()
		err = fmt.Errorf("the call Describe: %w", err)
		if _, silent := errors.AsType[noAnswer](err); silent { // nothing else can be checked
			err = &pluginproc.StartError{Path: spec.Path, Step: pluginproc.StepConnect, Problem: err.Error(), Err: err}
		}
		return nil, err
	}
	return s, nil
}

// config is what the plugin works with: the target's config, and every report of progress.
func (s *session) config() *wire.ConfigureRequest {
	return &wire.ConfigureRequest{Config: s.target.Config, Secrets: s.target.Secrets, ProgressMs: -1}
}

// ready configures the plugin and opens its stream.
func (s *session) ready(ctx context.Context) error {
	problems, err := s.Configure(ctx, s.config())
	if err == nil && len(problems) > 0 {
		err = differs("", "give it the config that it needs with --with", "it refuses the config %s: %s",
			cmp.Or(string(s.target.Config), "{}"), texts(problems))
	}
	if err != nil {
		return fmt.Errorf("the call Configure: %w", err)
	}
	return s.openStream()
}

// Describe calls Describe of the process within callTime, and adds the examples of the target.
func (s *session) Describe(ctx context.Context, req *wire.DescribeRequest) (d *wire.DescribeResponse, err error) {
	err = s.target.bounded(ctx, func(ctx context.Context) (err error) {
		if d, err = s.Proc.Describe(ctx, req); err == nil {
			d.Examples = append(d.Examples, s.target.Examples...)
		}
		return err
	})
	return d, err
}

// Configure calls Configure of the process within callTime.
func (s *session) Configure(ctx context.Context, req *wire.ConfigureRequest) (problems []*wire.Problem, err error) {
	s.state = validated
	if !req.ValidateOnly {
		s.state = spoiled // until its stream is open
	}
	err = s.target.bounded(ctx, func(ctx context.Context) (err error) {
		problems, err = s.Proc.Configure(ctx, req)
		return err
	})
	if !req.ValidateOnly {
		s.d.Emits = append(s.d.Emits, s.Emits()...)
	}
	return problems, err
}

// CheckHealth calls CheckHealth of the process within callTime.
func (s *session) CheckHealth(ctx context.Context) (problem string, err error) {
	err = s.target.bounded(ctx, func(ctx context.Context) (err error) {
		problem, err = s.Proc.CheckHealth(ctx)
		return err
	})
	return problem, err
}

func (s *session) openStream() (err error) {
	s.items, err = pluginproc.OpenSession(s, pluginproc.SessionConfig[struct{}]{Stray: s.stray})
	if err != nil {
		return fmt.Errorf("the call Process: %w", err)
	}
	s.stream, s.state = s.items.Stream, working
	return nil
}

// Open calls Open of the process. It keeps all reports of progress, also of items that the plugin does not have.
func (s *session) Open(e pluginproc.Events) (*pluginproc.Stream, error) {
	e.Progress = s.report
	return s.Proc.Open(e)
}

// NoExamples is why checks of the author's function are not made.
const NoExamples = "the plugin has no examples, so its results are unknown; add examples (Go: Plugin.Examples), or give --input FILE"

var errNoExamples = notChecked(NoExamples)

// withExamples is open for checks that need examples.
func (t Target) withExamples(ctx context.Context) (*session, error) {
	s, err := t.open(ctx)
	if err == nil && len(s.d.Examples) == 0 {
		s.leave(errNoExamples)
		return nil, errNoExamples
	}
	return s, err
}

// answer describes the answer of Configure in words.
func answer(problems []*wire.Problem, err error) string {
	if err != nil {
		return err.Error()
	}
	return texts(problems)
}

func texts(problems []*wire.Problem) string {
	return cmp.Or(wire.ProblemText(problems), "no problem")
}

func (s *session) stray(r *wire.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strays[r.Id] = append(s.strays[r.Id], r)
}

func (s *session) report(progress []*wire.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = append(s.progress, progress...)
}

// send sends items as the credits allow.
func (s *session) send(ctx context.Context, items ...*wire.Item) error {
	tasks := make([]*task, len(items))
	for i, it := range items {
		tasks[i] = &task{Item: it}
		s.tasks[it.Id] = tasks[i]
	}
	s.items.Add(tasks...)
	if missing, err := s.items.Wait(ctx, (*task).Sent, tasks...); err != nil {
		return differs("", "grant as many credits as items are wanted when the stream opens, and again when items are over",
			"it grants no credits for %d of %d items: %v", missing, len(items), s.why(err))
	}
	return nil
}

// wait waits until each of the items has a result.
func (s *session) wait(ctx context.Context, items ...*wire.Item) error {
	tasks := make([]*task, len(items))
	for i, it := range items {
		tasks[i] = s.tasks[it.Id]
	}
	if missing, err := s.items.Wait(ctx, s.answered, tasks...); err != nil {
		return fmt.Errorf("%d of %d items have no result: %w", missing, len(items), s.why(err))
	}
	return nil
}

// work sends items and waits until each has a result.
func (s *session) work(ctx context.Context, items ...*wire.Item) error {
	if err := s.send(ctx, items...); err != nil {
		return err
	}
	return s.wait(ctx, items...)
}

// finish closes the stream and waits until the plugin has sent its last results.
func (s *session) finish(ctx context.Context) error {
	s.stream.Close()
	s.state = spoiled
	select {
	case <-s.stream.Ended():
		return nil
	case <-ctx.Done():
		return differs("", "end the stream when the host has ended its side and every item has its result",
			"it does not end the stream: %v", context.Cause(ctx))
	}
}

// why replaces ErrEnded by the CrashError of the process, if it crashed.
func (s *session) why(err error) error {
	if !errors.Is(err, pluginproc.ErrEnded) {
		return err
	}
	<-s.Done()
	end, ok := errors.AsType[*pluginproc.CrashError](s.Err())
	if !ok {
		return err
	}
	if end.Stderr != "" {
		return fmt.Errorf("%w\n  stderr: %s", end, tail(end.Stderr))
	}
	return end
}

// tail is the end of a text.
func tail(text string) string {
	const most = 1000 // bytes
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return strings.ReplaceAll(strings.TrimSpace(strings.ToValidUTF8(text, "")), "\n", "\n          ")
}

// answered reports whether an item has a result, of any attempt.
func (s *session) answered(t *task) bool { return len(s.results(t)) > 0 }

func (s *session) results(t *task) []*wire.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Result == nil {
		return s.strays[t.Item.Id]
	}
	return append([]*wire.Result{t.Result}, s.strays[t.Item.Id]...)
}

// result is the one result of an item that was worked.
func (s *session) result(id int64) (*wire.Result, error) {
	all := s.results(s.tasks[id])
	if len(all) != 1 {
		return nil, fmt.Errorf("item %d has %d results", id, len(all))
	}
	return all[0], nil
}

func (s *session) item(payload string) *wire.Item {
	s.last++
	return &wire.Item{
		Id: s.last, Attempt: 1, Kind: s.d.Name, Key: fmt.Sprint(s.last), Payload: []byte(payload),
		IdempotencyKey: fmt.Sprintf("%s//%d/1", s.d.Name, s.last), LockId: fmt.Appendf(nil, "lock of %d", s.last),
	}
}

// example makes an item of an example, as the command line would.
func (s *session) example(e *wire.Example) *wire.Item {
	it := s.item(string(e.Payload))
	var fields map[string]any
	if s.d.Input == nil || json.Unmarshal(e.Payload, &fields) != nil {
		return it
	}
	if key, ok := fields[s.d.Input.Field].(string); ok {
		it.Key = key
		it.IdempotencyKey = fmt.Sprintf("%s//%s/%d", s.d.Name, key, it.Id)
	}
	return it
}

// examples makes an item of each example.
func (s *session) examples() []*wire.Item {
	items := make([]*wire.Item, len(s.d.Examples))
	for i, e := range s.d.Examples {
		items[i] = s.example(e)
	}
	return items
}
