package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// CallTime is how long a plugin has for each call until it works, if its Spec has no other time: to
// start, to describe itself, to look at a config, to open it, and to check what it depends on.
const CallTime = 10 * time.Second

// exitTime is how long the end of a process is waited for after its connection broke.
const exitTime = 5 * time.Second

// Phase is what a plugin was asked to do when it failed.
type Phase string

// Phases, in the order of a start; a start that fails is a *pluginproc.StartError.
const (
	PhaseDescribe Phase = "Describe"
	PhaseValidate Phase = "validation of the config"
	PhaseOpen     Phase = "Open"
	PhaseCheck    Phase = "Check"
)

// CallError reports which call to which plugin failed, and how. The process is gone.
type CallError struct {
	Plugin, Path string
	Kind         string // that it was started for; "" if for none
	Phase        Phase
	TimedOut     bool
	Err          error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("%s: %s: %v", named(e.Plugin, e.Path, e.Kind), e.Phase, e.Err)
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// Code is the error for programs.
func (e *CallError) Code() string {
	switch {
	case e.TimedOut:
		return "plugin_timeout"
	case errors.Is(e.Err, ErrDescription):
		return "plugin_description"
	}
	return "plugin_call"
}

// ErrDescription is wrapped by the error of a plugin that describes itself wrongly.
var ErrDescription = errors.New("wrong description")

// describedWrongly is the error of a plugin whose description cannot be used.
type describedWrongly struct{ error }

func (describedWrongly) Is(target error) bool { return target == ErrDescription }
func (d describedWrongly) Unwrap() error      { return d.error }

// OpenError gives the reason a plugin could not be opened with a config that it accepts.
type OpenError struct {
	Plugin, Path string
	Kind         string // that it was started for; "" if for none
	Problems     []*wire.Problem
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("%s accepts its config and cannot begin with it: Open: %s", named(e.Plugin, e.Path, e.Kind),
		wire.ProblemText(e.Problems))
}

// Code is the error for programs.
func (e *OpenError) Code() string { return "plugin_open" }

// named is a plugin as errors name it.
func named(plugin, path, kind string) string {
	who := fmt.Sprintf("plugin %s (%s)", plugin, path)
	if kind != "" && kind != plugin {
		who += " of kind " + kind
	}
	return who
}

// asker makes the calls to one process, each with its deadline.
type asker struct {
	proc *pluginproc.Proc
	spec *Spec
	kind string // "" if it is for none
}

// start starts the process of a plugin within the time that it has.
func (s *Spec) start(ctx context.Context) (*asker, error) {
	if s.Place.Broken != "" {
		return nil, &pluginproc.StartError{Path: s.Place.Path, Step: pluginproc.StepCheck, Err: pluginproc.ErrChecksum,
			Problem: s.Place.Broken,
			Hint: "remove " + s.Place.Path + " and add the plugin anew: ledgerd plugin add FILE\nif it is meant, " +
				"forget what was added: ledgerd plugin rm " + s.Place.Name}
	}
	p, err := pluginproc.Start(ctx, s.Proc())
	if err != nil {
		return nil, err
	}
	return &asker{proc: p, spec: s}, nil
}

// do makes one call. It is given up when its time is over.
func (a *asker) do(ctx context.Context, phase Phase, call func(context.Context) error) error {
	most := cmp.Or(a.spec.CallTime, CallTime)
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := call(bounded)
	if err == nil {
		return nil
	}
	if _, ends := ctx.Deadline(); ends && status.Code(err) == codes.DeadlineExceeded && bounded.Err() == nil {
		<-bounded.Done() // the plugin's side may report it a moment before
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	failed := &CallError{Plugin: a.spec.Place.Name, Path: a.spec.Place.Path, Kind: a.kind, Phase: phase, Err: err}
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded || bounded.Err() != nil:
		failed.TimedOut, failed.Err = true, fmt.Errorf("no answer within %s", most)
	case code == codes.Unavailable || code == codes.Canceled:
		// The connection is broken or closed already: the process is about to be seen dead, and its end explains more.
		select {
		case <-a.proc.Done():
			failed.Err = lastWordsOf(cmp.Or(a.proc.Err(), err))
		case <-time.After(exitTime):
		}
	default:
		failed.Err = errors.New(status.Convert(err).Message())
	}
	return failed
}

// lastWordsOf adds to how a process ended what it wrote to stderr at the end.
func lastWordsOf(err error) error {
	crash, crashed := errors.AsType[*pluginproc.CrashError](err)
	if !crashed || crash.Stderr == "" {
		return err
	}
	lines := strings.Split(crash.Stderr[max(0, len(crash.Stderr)-lastWords):], "\n")
	return fmt.Errorf("%w\n  stderr: %s", err, strings.Join(lines[max(0, len(lines)-5):], "\n          "))
}

// describe asks the plugin what it is.
func (a *asker) describe(ctx context.Context) (*Description, error) {
	var r *wire.DescribeResponse
	err := a.do(ctx, PhaseDescribe, func(ctx context.Context) (err error) {
		r, err = a.proc.Describe(ctx, &wire.DescribeRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return a.spec.describedBy(r, a.kind)
}

// validate has the plugin look at a config.
func (a *asker) validate(ctx context.Context, s *setup) error {
	problems, err := a.configure(ctx, PhaseValidate, s, true)
	if err == nil && len(problems) > 0 {
		err = &ConfigError{s.about.Name, problems}
	}
	return err
}

// open has the plugin put a config to use that it has accepted.
func (a *asker) open(ctx context.Context, s *setup) error {
	problems, err := a.configure(ctx, PhaseOpen, s, false)
	if err == nil && len(problems) > 0 {
		err = &OpenError{s.about.Name, a.spec.Place.Path, a.kind, problems}
	}
	return err
}

func (a *asker) configure(ctx context.Context, phase Phase, s *setup, validateOnly bool) (problems []*wire.Problem,
	err error) {
	err = a.do(ctx, phase, func(ctx context.Context) (err error) {
		problems, err = a.proc.Configure(ctx, &wire.ConfigureRequest{Config: s.request.Config, Secrets: s.request.Secrets,
			Concurrency: s.request.Concurrency, ValidateOnly: validateOnly})
		return err
	})
	return problems, err
}

// check has an open plugin look whether what it depends on is there.
func (a *asker) check(ctx context.Context) (problem string, err error) {
	err = a.do(ctx, PhaseCheck, func(ctx context.Context) (err error) {
		problem, err = a.proc.CheckHealth(ctx)
		return err
	})
	return problem, err
}
