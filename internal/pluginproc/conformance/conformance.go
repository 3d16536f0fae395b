// Package conformance has the checks of how a plugin's process behaves. "ledgerd plugin check" runs them on a program,
// sdktest.Conformance on the plugin under test. They know the protocol only, so they judge plugins in any language, and
// ask for nothing that ledgerd does not rely on.
//
// Each check starts processes of its own, or takes those that an earlier one has not spoiled (Target.Share). Its error
// has what was expected, what happened and what to do. The checks know what a plugin does for its items only from its
// examples. A plugin without examples is checked with payloads that do not fit; checks that need more report that they
// were not made. A promised duration may be exceeded up to five times (Target.Slack).
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Target is the plugin under check.
type Target struct {
	Spec    pluginproc.Spec
	Name    string            // that its description must have; "" allows any name
	Config  []byte            // JSON; nil means the defaults
	Secrets map[string]string // by field name
	// Examples are worked like those that the plugin describes.
	Examples []*wire.Example
	// Embedded means that the plugin is part of another program, such as a test binary. How that program behaves
	// when a person starts it is then not checked.
	Embedded bool
	// Quick leaves out the checks of times, for machines on which times mean nothing.
	Quick bool
	// Limit of a check; 0 means a minute.
	Limit time.Duration
	// Slack is the factor by which a promised duration may be exceeded; 0 means 5.
	Slack float64

	shared *shared // see Share
}

// Check is one thing to be checked.
type Check struct {
	Name   string
	Group  string // start, describe, configure, process or life
	About  string // the rule: "a plugin …"
	Advice string // what to do if it is broken, where the check has nothing better
	Timed  bool   // Quick leaves it out

	run func(ctx context.Context, t Target) error
}

// Failure is what a check found.
type Failure struct {
	Expected string
	Happened string
	Do       string // the next step
	TimedOut bool   // the check came to Target.Limit
	Err      error  // the cause, where there is one
}

// Error is a line of what happened and, below it, what was expected and what to do.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s\n  expected: %s\n  do: %s", f.Happened, f.Expected, f.Do)
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// ErrNotChecked is wrapped by the error of a check that could not be made: nothing is known to
// be wrong.
var ErrNotChecked = errors.New("not checked")

func notChecked(why string) error { return fmt.Errorf("%w: %s", ErrNotChecked, why) }

// differs returns a *Failure. expected and do may be "": then Run takes About and Advice of the check. format may wrap
// the cause with %w.
func differs(expected, do, format string, args ...any) error {
	happened := fmt.Errorf(format, args...)
	return &Failure{Expected: expected, Do: do, Happened: happened.Error(), Err: errors.Unwrap(happened)}
}

// Run makes the check. The error is nil, wraps ErrNotChecked, is the cause of ctx's end, or is a *Failure.
func (c Check) Run(ctx context.Context, t Target) error {
	limit := cmp.Or(t.Limit, time.Minute)
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%v have passed", limit))
	defer cancel()
	err := c.run(bounded, t)
	if err == nil || errors.Is(err, ErrNotChecked) {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, silent := errors.AsType[noAnswer](err)
	f := &Failure{Happened: err.Error(), TimedOut: bounded.Err() != nil || silent, Err: err}
	if own, ok := errors.AsType[*Failure](err); ok {
		f.Expected, f.Do = own.Expected, own.Do
		if before, ok := strings.CutSuffix(err.Error(), own.Error()); ok { // without expectation and advice
			f.Happened = before + own.Happened
		}
	}
	f.Expected = cmp.Or(f.Expected, "a plugin "+c.About)
	f.Do = cmp.Or(f.Do, c.Advice)
	return f
}

// Checks lists the checks that make sense for a target.
func Checks(t Target) []Check {
	var checks []Check
	for _, c := range all {
		switch {
		case c.Name == byHand && t.Embedded:
		case c.Name == overTLS && t.Spec.NoMTLS: // it is known not to
		case c.Name == leftBehind && runtime.GOOS != "linux": // elsewhere the children of a plugin are not known
		case c.Timed && t.Quick:
		default:
			checks = append(checks, c)
		}
	}
	return checks
}

// Groups of checks, in the order of a plugin's life.
const (
	GroupStart     = "start"
	GroupDescribe  = "describe"
	GroupConfigure = "configure"
	GroupProcess   = "process"
	GroupLife      = "life"
)

// Checks without which no check after them can be made.
const (
	Handshake = "handshake"
	Config    = "config"
)

// callTime is how long a plugin has for its handshake and for each call until it works, as ledgerd gives it.
func (t Target) callTime() time.Duration { return cmp.Or(t.Spec.StartTimeout, 10*time.Second) }

// noAnswer is the error of a call without an answer. Its value is the time after which the call was given up.
type noAnswer time.Duration

// Error tells the time.
func (n noAnswer) Error() string { return fmt.Sprintf("no answer within %s", time.Duration(n)) }

// bounded makes a call, and gives it up after callTime.
func (t Target) bounded(ctx context.Context, call func(context.Context) error) error {
	late := noAnswer(t.callTime())
	inner, cancel := context.WithTimeoutCause(ctx, t.callTime(), late)
	defer cancel()
	err := call(inner)
	if err != nil && ctx.Err() == nil && inner.Err() != nil {
		return late
	}
	return err
}

// Checks that not every target has.
const (
	byHand     = "by hand"
	overTLS    = "tls"
	leftBehind = "left behind"
)

var all = []Check{
	{Name: byHand, Group: GroupStart, run: checkNoCookie,
		About:  "explains on stderr what it is when a person starts it, and exits with 1",
		Advice: "before anything else: if the variable LEDGERD_PLUGIN is not set, write a line to stderr and exit with 1"},
	{Name: Handshake, Group: GroupStart, run: checkHandshake,
		About:  "writes one line to stdout, 1|1|unix|PATH|grpc|, with a socket in PLUGIN_UNIX_SOCKET_DIR, and nothing else",
		Advice: "compare with the handshake in docs/plugins/any-language.md; print everything else to stderr"},
	{Name: overTLS, Group: GroupStart, run: checkTLS,
		About: "given PLUGIN_CLIENT_CERT, serves TLS and accepts only that client",
		Advice: "require and verify the client's certificate, and trust that of PLUGIN_CLIENT_CERT only; where the " +
			"language cannot, set mtls = false for the plugin"},
	{Name: "plain", Group: GroupStart, run: checkNoTLS,
		About:  "serves without TLS if PLUGIN_CLIENT_CERT is not set",
		Advice: "leave the last field of the handshake line empty then, and serve without TLS"},

	{Name: "describe", Group: GroupDescribe, run: with(Target.start, checkDescribe),
		About:  "describes itself, the same every time and in every process",
		Advice: "make the answer of Describe from constants: no times, no counters, no order of a map"},
	{Name: "name", Group: GroupDescribe, run: with(Target.described, checkName),
		About:  "calls itself what it is called here: NAME of its program ledgerd-plugin-NAME, or of [plugins.NAME]",
		Advice: "rename the plugin or the program: ledgerd finds it by that name, and starts no other one"},
	{Name: "size", Group: GroupDescribe, run: with(Target.described, checkSize),
		About:  "describes itself within the limits",
		Advice: "shorten what is too long; many values of one sort belong into one field that is a list or an object"},
	{Name: "schemas", Group: GroupDescribe, run: with(Target.described, checkSchemas),
		About:  "describes config, payload and output with schemas that mean something",
		Advice: "correct the schema in the answer of Describe"},
	{Name: "described examples", Group: GroupDescribe, run: with(Target.described, checkDescribedExamples),
		About:  "has examples that fit its own schemas",
		Advice: "correct the example or the schema"},

	{Name: Config, Group: GroupConfigure, run: with(Target.open, checkConfig),
		About:  "accepts its config, and answers CheckHealth then",
		Advice: "give it the config that it needs with --with; a config without any field should do if that is possible"},
	{Name: "refusals", Group: GroupConfigure, run: with(Target.start, checkRefusals),
		About: "refuses a config that does not fit and names the field",
		Advice: "validate the config against the schema of Describe and answer with a Problem for each field that is " +
			"wrong or unknown"},
	{Name: "validate only", Group: GroupConfigure, run: with(Target.start, checkValidateOnly),
		About:  "is not changed by a config that it was only to validate",
		Advice: "with validate_only, check the config, and neither keep nor open anything"},
	{Name: "secrets", Group: GroupConfigure, run: with(Target.described, checkSecrets),
		About:  "keeps secrets to itself",
		Advice: "take secrets out of what is logged, and out of texts of errors"},

	{Name: "examples", Group: GroupProcess, run: with(Target.withExamples, checkExamples),
		About:  "gives the results of its examples",
		Advice: "correct the example, or what the plugin makes of it"},
	{Name: "results", Group: GroupProcess, run: with(Target.open, checkResults),
		About:  "sends results and reports that ledgerd can keep",
		Advice: "see the comments of Result in the protocol, sdk/wire/plugin.proto"},
	{Name: "payload", Group: GroupProcess, run: with(Target.open, checkPayload),
		About:  "fails items whose payload does not fit, for good, with code payload, and lives on",
		Advice: "validate the payload against the schema of Describe before anything else"},
	{Name: "large", Group: GroupProcess, run: with(Target.open, checkLarge),
		About:  "takes a payload of 1 MiB",
		Advice: "raise the limit of a received message to 16 MiB: many libraries have 4 MiB or less"},
	{Name: "unknown fields", Group: GroupProcess, run: with(Target.start, checkUnknownFields),
		About:  "ignores fields and values of a newer protocol",
		Advice: "ignore fields and enum values that are not known, as the protocol buffers of all languages do by default"},
	{Name: "many", Group: GroupProcess, run: with(Target.open, checkMany),
		About:  "gives each of 1,000 items exactly one result and grants credits again",
		Advice: "send one result for each item, with its id, attempt and lock_id, and a credit for each item that is over"},
	{Name: "again", Group: GroupProcess, run: with(Target.withExamples, checkAgain),
		About:  "can do an item that was done before: the report may have been lost",
		Advice: "make the work repeatable, or find out by the idempotency key that it was done, and answer SKIPPED"},
	{Name: "cancel", Group: GroupProcess, run: with(Target.open, checkCancel),
		About:  "takes no notice of cancels of items that it does not have",
		Advice: "look the item up by id and attempt; where there is none, the result is on its way and no second one is due"},
	{Name: "cancel in work", Group: GroupProcess, run: with(Target.withExamples, checkCancelInWork), Timed: true,
		About:  "ends an item that is cancelled within 2 s, and does not call it a failure",
		Advice: "pass the item's context to everything that waits, and return its error"},
	{Name: "timeout", Group: GroupProcess, run: with(Target.withExamples, checkTimeout), Timed: true,
		About:  "ends an item within 2 s of its timeout",
		Advice: "count timeout_ms from the begin of the work, and answer FAILED with ENDING_TIMED_OUT"},

	{Name: "drain", Group: GroupLife, run: with(Target.open, checkDrain), Timed: true,
		About:  "that has nothing to do ends within 3 s after a Drain",
		Advice: "answer Drain, end the stream when the host has, and exit with 0 at Shutdown, or when stdin ends"},
	{Name: "drain in work", Group: GroupLife, run: with(Target.open, checkDrainInWork),
		About:  "gives each item that it has a result after a Drain, or names it as unfinished",
		Advice: "answer Drain when every item has its result: RELEASED for what was not begun or not finished"},
	{Name: leftBehind, Group: GroupLife, run: with(Target.open, checkLeftBehind),
		About:  "leaves no process behind that has left its process group",
		Advice: "start children without setsid, or end them before the plugin does"},
	{Name: "orphan", Group: GroupLife, run: with(Target.open, checkOrphan), Timed: true,
		About:  "is gone within 3 s when ledgerd is",
		Advice: "read stdin in a thread of its own, and exit when it ends"},
	{Name: "steady", Group: GroupLife, run: with(Target.open, checkSteady), Timed: true,
		About: fmt.Sprintf("does not grow: after up to 1,000 items it has at most %d more files open and %d MiB more "+
			"memory than after the first %d", steadyFiles, steadyMemory>>20, steadyRound),
		Advice: "close what is opened for an item, and keep nothing of it"},
}

// bound is a duration that the protocol promises, times Slack.
func (t Target) bound(promised time.Duration) time.Duration {
	return time.Duration(float64(promised) * cmp.Or(t.Slack, 5))
}
