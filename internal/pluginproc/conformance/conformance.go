// Package conformance checks how a plugin's process behaves: what "ledgerd plugin check" runs
// on a program and sdktest.Conformance on an author's own. It knows the protocol only, so it
// judges plugins in any language.
//
// Each check starts processes of its own and says in one error what is wrong. Times that the
// protocol promises are asserted with five times the bound.
package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Target is the plugin under check.
type Target struct {
	Spec    pluginproc.Spec
	Config  []byte            // JSON; nil means the defaults
	Secrets map[string]string // by field name
	// Embedded says that the program is something else, too, such as a test binary: how it
	// behaves when it is run by hand is not asked.
	Embedded bool
}

// Check is one thing to be checked.
type Check struct {
	Name  string
	About string // what must be so
	Run   func(ctx context.Context, t Target) error
}

// Checks lists the checks that make sense for a target.
func Checks(t Target) []Check {
	checks := []Check{
		{"describe", "says what it is, the same every time, and sensibly", checkDescribe},
		{"plain", "also serves without TLS", checkPlain},
		{"config", "accepts its config, and names each field that does not fit", checkConfig},
		{"secrets", "keeps secrets to itself", checkSecrets},
		{"examples", "gives what its examples say", checkExamples},
		{"payload", "fails items whose payload does not fit, for good, and lives on", checkPayload},
		{"many", "gives each of many items one result", checkMany},
		{"cancel", "takes no notice of cancels of items it does not have", checkCancel},
		{"drain", "ends when it is told to", checkDrain},
		{"orphan", "ends when ledgerd is gone", checkOrphan},
	}
	if !t.Embedded {
		checks = append([]Check{{"by hand", "tells people who start it what it is", checkByHand}}, checks...)
	}
	return checks
}

const (
	orphanBound = 3 * time.Second
	drainBound  = 3 * time.Second
	slack       = 5
)

// session is a started plugin and what came from it.
type session struct {
	*pluginproc.Proc
	d      *wire.DescribeResponse
	stream *pluginproc.Stream

	mu      sync.Mutex
	arrived chan struct{} // closed and replaced when results arrive
	results map[int64][]*wire.Result
	output  bytes.Buffer
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
		return nil, fmt.Errorf("the call Describe: %w", err)
	}
	return s, nil
}

// open starts a plugin that is ready for items.
func (t Target) open(ctx context.Context) (*session, error) {
	s, err := t.start(ctx)
	if err != nil {
		return nil, err
	}
	problems, err := s.Configure(ctx, &wire.ConfigureRequest{Config: t.Config, Secrets: t.Secrets})
	if err == nil && len(problems) > 0 {
		err = fmt.Errorf("refused: %v", problems)
	}
	if err != nil {
		s.Kill()
		return nil, fmt.Errorf("the call Configure: %w", err)
	}
	if s.stream, err = s.Open(pluginproc.Events{Results: s.take}); err != nil {
		s.Kill()
		return nil, fmt.Errorf("the call Process: %w", err)
	}
	return s, nil
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

// work sends items as the credits allow and waits until each has a result.
func (s *session) work(ctx context.Context, items ...*wire.Item) error {
	for rest := items; len(rest) > 0; {
		n, err := s.stream.WaitCredits(ctx)
		if err != nil {
			return fmt.Errorf("it grants no credits: %w", s.why(err))
		}
		n = min(n, len(rest))
		if err := s.stream.Send(rest[:n]); err != nil {
			return s.why(err)
		}
		rest = rest[n:]
	}
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

// why prefers how the process ended to that it ended.
func (s *session) why(err error) error {
	if !errors.Is(err, pluginproc.ErrEnded) {
		return err
	}
	<-s.Done()
	if end := s.Err(); end != nil {
		return end
	}
	return err
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

func (s *session) item(id int64, payload string) *wire.Item {
	return &wire.Item{
		Id: id, Attempt: 1, Kind: s.d.Name, Key: fmt.Sprint(id), IdempotencyKey: fmt.Sprintf("%s//%d/1", s.d.Name, id),
		Payload: []byte(payload), LockId: fmt.Appendf(nil, "lock of %d", id),
	}
}
