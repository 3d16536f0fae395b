package conformance

import (
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
	stream *pluginproc.Stream
	last   int64 // id

	mu       sync.Mutex
	arrived  chan struct{} // closed and replaced when results arrive
	results  map[int64][]*wire.Result
	progress []*wire.Progress
	output   capped
}

func (t Target) start(ctx context.Context) (*session, error) {
	s := &session{arrived: make(chan struct{}), results: map[int64][]*wire.Result{}}
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
		if errors.Is(err, errNoAnswer) { // nothing else can be checked
			err = &pluginproc.StartError{Path: spec.Path, Step: pluginproc.StepConnect, Problem: err.Error(), Err: err}
		}
		return nil, err
	}
	return s, nil
}

// open starts a plugin that is ready for items.
func (t Target) open(ctx context.Context) (*session, error) {
	s, err := t.start(ctx)
	if err != nil {
		return nil, err
	}
	problems, err := s.Configure(ctx, &wire.ConfigureRequest{Config: t.Config, Secrets: t.Secrets, ProgressMs: -1})
	if err == nil && len(problems) > 0 {
		err = differs("", "give it the config that it needs with --with", "it refuses the config %s: %s", orEmpty(t.Config), texts(problems))
	}
	if err != nil {
		s.Kill()
		return nil, fmt.Errorf("the call Configure: %w", err)
	}
	if err := s.openStream(); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// Describe is that of the process, within the time that it has.
func (s *session) Describe(ctx context.Context, req *wire.DescribeRequest) (d *wire.DescribeResponse, err error) {
	err = bounded(ctx, func(ctx context.Context) (err error) { d, err = s.Proc.Describe(ctx, req); return err })
	return d, err
}

// Configure is that of the process, within the time that it has.
func (s *session) Configure(ctx context.Context, req *wire.ConfigureRequest) (problems []*wire.Problem, err error) {
	err = bounded(ctx, func(ctx context.Context) (err error) { problems, err = s.Proc.Configure(ctx, req); return err })
	return problems, err
}

// CheckHealth is that of the process, within the time that it has.
func (s *session) CheckHealth(ctx context.Context) (problem string, err error) {
	err = bounded(ctx, func(ctx context.Context) (err error) { problem, err = s.Proc.CheckHealth(ctx); return err })
	return problem, err
}

func (s *session) openStream() (err error) {
	if s.stream, err = s.Open(pluginproc.Events{Results: s.take, Progress: s.report}); err != nil {
		return fmt.Errorf("the call Process: %w", err)
	}
	return nil
}

var errNoExamples = notChecked("the plugin has no examples, so nobody knows what it should do; add some to what Describe says")

// withExamples is open for checks that need examples.
func (t Target) withExamples(ctx context.Context) (*session, error) {
	s, err := t.open(ctx)
	if err == nil && len(s.d.Examples) == 0 {
		s.Kill()
		return nil, errNoExamples
	}
	return s, err
}

func orEmpty(config []byte) string {
	if len(config) == 0 {
		return "{}"
	}
	return string(config)
}

// answer is what Configure says, in words.
func answer(problems []*wire.Problem, err error) string {
	if err != nil {
		return err.Error()
	}
	return texts(problems)
}

func texts(problems []*wire.Problem) string {
	list := make([]string, len(problems))
	for i, p := range problems {
		list[i] = strings.TrimPrefix(p.Field+": "+p.Message, ": ")
	}
	if len(list) == 0 {
		return "no problem"
	}
	return strings.Join(list, "; ")
}

func (s *session) take(results []*wire.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results {
		s.results[r.Id] = append(s.results[r.Id], r)
	}
	close(s.arrived)
	s.arrived = make(chan struct{})
}

func (s *session) report(progress []*wire.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = append(s.progress, progress...)
}

// send sends items as the credits allow.
func (s *session) send(ctx context.Context, items ...*wire.Item) error {
	for rest := items; len(rest) > 0; {
		n, err := s.stream.WaitCredits(ctx)
		if err != nil {
			return differs("", "grant as many credits as items are wanted when the stream opens, and again when items are over",
				"it grants no credits for %d of %d items: %v", len(rest), len(items), s.why(err))
		}
		n = min(n, len(rest))
		if err := s.stream.Send(rest[:n]); err != nil {
			return s.why(err)
		}
		rest = rest[n:]
	}
	return nil
}

// wait waits until each of the items has a result.
func (s *session) wait(ctx context.Context, items ...*wire.Item) error {
	for {
		s.mu.Lock()
		missing := 0
		for _, it := range items {
			if len(s.results[it.Id]) == 0 {
				missing++
			}
		}
		arrived := s.arrived
		s.mu.Unlock()
		if missing == 0 {
			return nil
		}
		select {
		case <-arrived:
		case <-s.Done():
			return fmt.Errorf("%d of %d items have no result: %w", missing, len(items), s.why(pluginproc.ErrEnded))
		case <-ctx.Done():
			return fmt.Errorf("%d of %d items have no result: %w", missing, len(items), context.Cause(ctx))
		}
	}
}

// work sends items and waits until each has a result.
func (s *session) work(ctx context.Context, items ...*wire.Item) error {
	if err := s.send(ctx, items...); err != nil {
		return err
	}
	return s.wait(ctx, items...)
}

// finish ends the stream and waits for whatever is still on its way.
func (s *session) finish(ctx context.Context) error {
	s.stream.Close()
	select {
	case <-s.stream.Ended():
		return nil
	case <-ctx.Done():
		return differs("", "end the stream when the host has ended its side and every item has its result",
			"it does not end the stream: %v", context.Cause(ctx))
	}
}

// why prefers how the process ended to that it ended.
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

// result is the one result of an item that was worked.
func (s *session) result(id int64) (*wire.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.results[id]); n != 1 {
		return nil, fmt.Errorf("item %d has %d results", id, n)
	}
	return s.results[id][0], nil
}

// forget makes room for the result of another attempt.
func (s *session) forget(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.results, id)
}

func (s *session) item(payload string) *wire.Item {
	s.last++
	return &wire.Item{
		Id: s.last, Attempt: 1, Kind: s.d.Name, Key: fmt.Sprint(s.last), IdempotencyKey: fmt.Sprintf("%s//%d/1", s.d.Name, s.last),
		Payload: []byte(payload), LockId: fmt.Appendf(nil, "lock of %d", s.last),
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
