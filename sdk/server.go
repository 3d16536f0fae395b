package sdk

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// server is the plugin's side of the protocol.
type server struct {
	wire.UnimplementedPluginServer
	plugin *Plugin

	mu          sync.Mutex
	inst        instance // nil before Configure
	closed      bool
	closeErr    error // of the config's Close
	concurrency int
	progress    time.Duration // see session.every
	session     *session      // nil before Process
}

func newServer(p *Plugin) *server { return &server{plugin: p} }

// Describe implements the protocol.
func (s *server) Describe(context.Context, *wire.DescribeRequest) (*wire.DescribeResponse, error) {
	d, err := s.plugin.describe()
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return d, nil
}

// Configure implements the protocol.
func (s *server) Configure(ctx context.Context, req *wire.ConfigureRequest) (*wire.ConfigureResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inst != nil && !req.ValidateOnly {
		return nil, status.Error(codes.FailedPrecondition, "configured already: another config takes another process")
	}
	inst, problems := s.plugin.run.configure(ctx, req.Config, req.Secrets, req.ValidateOnly)
	if len(problems) == 0 && !req.ValidateOnly {
		s.inst = inst
		s.concurrency = s.plugin.concurrency()
		if req.Concurrency > 0 {
			s.concurrency = int(req.Concurrency)
		}
		s.progress = cmp.Or(time.Duration(req.ProgressMs)*time.Millisecond, time.Second)
	}
	res := &wire.ConfigureResponse{Problems: problems}
	if inst != nil {
		res.Emits = inst.emits()
	}
	return res, nil
}

// Process implements the protocol.
func (s *server) Process(rpc wire.Plugin_ProcessServer) error {
	s.mu.Lock()
	if s.inst == nil || s.session != nil || s.closed {
		s.mu.Unlock()
		return status.Error(codes.FailedPrecondition, "Process is called once, after Configure")
	}
	s.session = newSession(s.inst, s.plugin, s.plugin.run.batched(), s.concurrency, s.progress)
	session := s.session
	s.mu.Unlock()
	return session.serve(rpc)
}

// CheckHealth implements the protocol.
func (s *server) CheckHealth(ctx context.Context, _ *wire.CheckHealthRequest) (*wire.CheckHealthResponse, error) {
	s.mu.Lock()
	inst, closed := s.inst, s.closed
	s.mu.Unlock()
	if inst == nil || closed {
		return nil, status.Error(codes.FailedPrecondition, "CheckHealth is called after Configure and before Drain")
	}
	if err := inst.check(ctx); err != nil {
		return &wire.CheckHealthResponse{Problem: cleanText(err.Error(), wire.MaxError)}, nil
	}
	return &wire.CheckHealthResponse{}, nil
}

// Drain implements the protocol.
func (s *server) Drain(ctx context.Context, req *wire.DrainRequest) (*wire.DrainResponse, error) {
	unfinished := s.drain(ctx, time.Duration(req.GraceMs)*time.Millisecond)
	_ = s.close() // the process reports the error when it exits
	return &wire.DrainResponse{Unfinished: unfinished}, nil
}

func (s *server) drain(ctx context.Context, grace time.Duration) []int64 {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	if session == nil {
		return nil
	}
	return session.drain(ctx, grace)
}

// close closes the config once. Each call returns the error.
func (s *server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inst != nil && !s.closed {
		s.closed, s.closeErr = true, s.inst.close()
	}
	return s.closeErr
}

// Defaults of fields that are 0.
const (
	defaultBatch = 100
	defaultWait  = 20 * time.Millisecond
)

func (p *Plugin) concurrency() int {
	if p.Concurrency > 0 {
		return p.Concurrency
	}
	return runtime.GOMAXPROCS(0)
}

func (p *Plugin) batch() (items int, wait time.Duration) {
	return cmp.Or(p.MaxBatch, defaultBatch), cmp.Or(p.MaxWait, defaultWait)
}

// describe returns the plugin's description, or the first error in its fields.
func (p *Plugin) describe() (*wire.DescribeResponse, error) {
	config, input, output := p.run.shapes()
	d := &wire.DescribeResponse{
		Name: p.Name, Version: p.Version, Doc: p.Doc, Sdk: "go/" + Version,
		Match: p.Match, Emits: p.Emits, OnLost: wire.OnLost(p.OnLost),
		TimeoutMs: milliseconds(p.Timeout), MaxFailures: int32(p.MaxFailures), Concurrency: int32(p.concurrency()),
		ConfigSchema: config.json, InputSchema: input.json, OutputSchema: output.json,
		Input: input.input, Secrets: config.schema.Secrets(),
	}
	if p.Previous {
		d.Features = []string{wire.FeaturePrevious}
	}
	if p.run.batched() {
		items, wait := p.batch()
		d.MaxBatch, d.MaxWaitMs = int32(items), milliseconds(wait)
	}
	switch {
	case !wire.NameForm().MatchString(p.Name):
		return nil, fmt.Errorf("plugin %q: the name must be [a-z0-9][a-z0-9-]{0,63}", p.Name)
	case !wire.VersionForm().MatchString(p.Version):
		return nil, fmt.Errorf("plugin %s: version %q is not a semantic version such as 1.2.3", p.Name, p.Version)
	case len(p.Match) > 0 && input.input.GetType() != "file":
		return nil, fmt.Errorf("plugin %s: Match needs a payload field with the tag input:\"file\"", p.Name)
	case p.Concurrency < 0 || p.Timeout < 0 || p.MaxFailures < 0 || p.MaxBatch < 0 || p.MaxWait < 0:
		return nil, fmt.Errorf("plugin %s: a number is negative", p.Name)
	}
	for _, kind := range p.Emits {
		if !wire.NameForm().MatchString(kind) {
			return nil, fmt.Errorf("plugin %s: Emits: %q is not the name of a kind", p.Name, kind)
		}
	}
	for i, e := range p.Examples {
		w, err := p.example(e)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: example %d: %w", p.Name, i+1, err)
		}
		d.Examples = append(d.Examples, w)
	}
	return d, nil
}

func (p *Plugin) example(e Example) (*wire.Example, error) {
	_, input, _ := p.run.shapes()
	payload, err := input.schema.Marshal(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if err := input.schema.Validate(payload); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	w := &wire.Example{Doc: e.Doc, Payload: payload}
	if e.Output != nil {
		if w.Output, err = json.Marshal(e.Output); err != nil {
			return nil, fmt.Errorf("output: %w", err)
		}
	}
	return w, nil
}
