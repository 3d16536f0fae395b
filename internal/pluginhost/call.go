package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// CallTime bounds each call before the first item, unless the Spec has another time: start, description, validation of
// the config, Open, Check.
const CallTime = 10 * time.Second

// exitTime is how long a failed call waits for the end of the process if its connection broke.
const exitTime = 5 * time.Second

// Phase is the call that failed.
type Phase string

// Phases, in the order of a start. A process that does not start is a *pluginproc.StartError instead.
const (
	PhaseDescribe Phase = "Describe"
	PhaseValidate Phase = "validation of the config"
	PhaseOpen     Phase = "Open"
	PhaseCheck    Phase = "Check"
)

// CallError is a failed call to a plugin. The process is gone.
type CallError struct {
	Plugin, Path string
	Kind         string // of the items to work; "" if the plugin was started for no kind
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

// ErrDescription is wrapped by errors about a description that breaks the rules of the protocol.
var ErrDescription = errors.New("wrong description")

// describedWrongly makes an error wrap ErrDescription without its text.
type describedWrongly struct{ error }

func (describedWrongly) Is(target error) bool { return target == ErrDescription }
func (d describedWrongly) Unwrap() error      { return d.error }

// OpenError is the failure of Open with a config that the plugin has accepted: another config would not help.
type OpenError struct {
	Plugin, Path string
	Kind         string // of the items to work; "" if the plugin was started for no kind
	Problems     []*wire.Problem
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("%s accepts its config and cannot begin with it: Open: %s", named(e.Plugin, e.Path, e.Kind),
		wire.ProblemText(e.Problems))
}

// Code is the error for programs.
func (e *OpenError) Code() string { return "plugin_open" }

// named names a plugin in the text of an error.
func named(plugin, path, kind string) string {
	who := fmt.Sprintf("plugin %s (%s)", plugin, path)
	if kind != "" && kind != plugin {
		who += " of kind " + kind
	}
	return who
}

// asker makes the calls to one process, each with its own deadline.
type asker struct {
	proc *pluginproc.Proc
	spec *Spec
	kind string // for errors; may be ""
}

// start starts the process of a plugin, within CallTime.
func (s *Spec) start(ctx context.Context) (*asker, error) {
	if s.Place.Broken != "" {
		return nil, &pluginproc.StartError{Path: s.Place.Path, Step: pluginproc.StepCheck, Err: pluginproc.ErrChecksum,
			Problem: s.Place.Broken,
			Hint: "remove " + s.Place.Path + " and add the plugin anew: ledgerd plugin add FILE\nif it is meant, " +
				"forget what was added: ledgerd plugin rm " + s.Place.Name}
	}
	p, err := pluginproc.Start(ctx, s.Proc())
	if wrong, ok := errors.AsType[*pluginproc.StartError](err); ok && errors.Is(err, pluginproc.ErrChecksum) &&
		s.SHA256 == s.Place.SHA256 { // no config has the sum
		wrong.Hint = "add it anew: ledgerd plugin add FILE"
	}
	if err != nil {
		return nil, err
	}
	return &asker{proc: p, spec: s}, nil
}

// do makes one call and gives it up after the CallTime of the Spec. Errors: *CallError, or the cause of ctx.
func (a *asker) do(ctx context.Context, phase Phase, call func(context.Context) error) error {
	most := cmp.Or(a.spec.CallTime, CallTime)
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := call(bounded)
	if err == nil {
		return nil
	}
	if _, ends := ctx.Deadline(); ends && status.Code(err) == codes.DeadlineExceeded && bounded.Err() == nil {
		<-bounded.Done() // gRPC may report the deadline a moment before the context does
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	failed := &CallError{Plugin: a.spec.Place.Name, Path: a.spec.Place.Path, Kind: a.kind, Phase: phase, Err: err}
	switch code := status.Code(err); {
	case code == codes.DeadlineExceeded || bounded.Err() != nil:
		failed.TimedOut, failed.Err = true, fmt.Errorf("no answer within %s", most)
	case code == codes.Unavailable || code == codes.Canceled:
		// The connection is broken, so the process has probably died; the way it ended explains more.
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

// lastWordsOf adds the last lines of stderr to the error of a process that crashed.
func lastWordsOf(err error) error {
	crash, crashed := errors.AsType[*pluginproc.CrashError](err)
	if !crashed || crash.Stderr == "" {
		return err
	}
	const most = 2 << 10 // bytes
	lines := strings.Split(crash.Stderr[max(0, len(crash.Stderr)-most):], "\n")
	return fmt.Errorf("%w\n  stderr: %s", err, strings.Join(lines[max(0, len(lines)-5):], "\n          "))
}

// describe gets the plugin's description.
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

// validate has the plugin check a config. It returns a *ConfigError if the plugin refuses it.
func (a *asker) validate(ctx context.Context, s *setup) error {
	problems, err := a.configure(ctx, PhaseValidate, s, true)
	if err == nil && len(problems) > 0 {
		err = &ConfigError{s.about.Name, problems}
	}
	return err
}

// open opens the plugin with a config that it has accepted. It returns an *OpenError if the plugin reports problems.
func (a *asker) open(ctx context.Context, s *setup) error {
	problems, err := a.configure(ctx, PhaseOpen, s, false)
	if err == nil && len(problems) > 0 {
		err = &OpenError{s.about.Name, a.spec.Place.Path, a.kind, problems}
	}
	s.emits = slices.Concat(s.about.Emits, a.proc.Emits())
	return err
}

func (a *asker) configure(ctx context.Context, phase Phase, s *setup, validateOnly bool) (problems []*wire.Problem,
	err error) {
	err = a.do(ctx, phase, func(ctx context.Context) (err error) {
		problems, err = a.proc.Configure(ctx, &wire.ConfigureRequest{Config: s.request.Config, Secrets: s.request.Secrets,
			Concurrency: s.request.Concurrency, ValidateOnly: validateOnly})
		return err
	})
	for _, p := range problems { // a plugin may quote what it was given
		p.Field, p.Message = s.hide.Hide(p.Field), s.hide.Hide(p.Message)
	}
	return problems, err
}

// check asks an open plugin whether its dependencies are available. The problem is "" if they are.
func (a *asker) check(ctx context.Context) (problem string, err error) {
	err = a.do(ctx, PhaseCheck, func(ctx context.Context) (err error) {
		problem, err = a.proc.CheckHealth(ctx)
		return err
	})
	return problem, err
}
