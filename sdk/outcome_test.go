package sdk

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

var errBoom = errors.New("boom")

func TestJudge(t *testing.T) {
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		return ctx
	}
	late, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	live := context.Background()
	tests := []struct {
		ctx  context.Context
		err  error
		want *wire.Result
	}{
		{live, nil, &wire.Result{Outcome: wire.Result_OUTCOME_DONE}},
		{ended(ErrCancelled), nil, &wire.Result{Outcome: wire.Result_OUTCOME_DONE}},
		{live, errBoom, &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Error: "boom"}},
		{live, Permanent(errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Final: true, Error: "boom"}},
		{live, RetryAfter(1500*time.Microsecond, errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, DelayMs: 2,
			Error: "boom"}},
		{live, RetryAfter(-time.Second, errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Error: "boom"}},
		{live, SnoozeAtMost(3, time.Second, Code("http_503", errBoom)), &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED,
			DelayMs: 1000, Code: "http_503", Error: "boom", AtMost: 3}},
		{live, SnoozeAtMost(0, time.Second, errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, DelayMs: 1000,
			Error: "boom"}},
		{live, SnoozeAtMost(math.MaxInt, 0, errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED, Error: "boom",
			AtMost: 100}},
		{live, Snooze(-1, "soon"), &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED, DelayMs: 1000, Error: "soon"}},
		{live, Snooze(time.Minute, "later"), &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED, DelayMs: 60000,
			Error: "later"}},
		{live, Skip("empty"), &wire.Result{Outcome: wire.Result_OUTCOME_SKIPPED, Error: "empty"}},
		{live, Doubt(errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_UNKNOWN, Error: "boom"}},
		{live, Code("http_404", errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Code: "http_404", Error: "boom"}},
		{live, Code("gone", Permanent(errBoom)), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Final: true, Code: "gone",
			Error: "boom"}},
		{live, Permanent(Code("gone", errBoom)), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Final: true, Code: "gone",
			Error: "boom"}},
		{live, fmt.Errorf("reading: %w", Permanent(Code("gone", errBoom))), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED,
			Final: true, Code: "gone", Error: "reading: boom"}},
		{live, Code("Bad Käse!", errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Code: "bad_k_se_",
			Error: "boom"}},
		{live, Code("", errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Code: "_", Error: "boom"}},
		{live, Code(strings.Repeat("x", 65), errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED,
			Code: strings.Repeat("x", 64), Error: "boom"}},
		{live, errors.New("a\x00b\xff"), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Error: "a\uFFFDb\uFFFD"}},
		{live, errors.New(strings.Repeat("ä", 5000)), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED,
			Error: strings.Repeat("ä", 4096)}},
		{live, errors.New("x" + strings.Repeat("ä", 5000)), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Error: "x" +
			strings.Repeat("ä", 4095)}},
		{ended(ErrCancelled), errBoom, &wire.Result{Outcome: wire.Result_OUTCOME_CANCELLED, Error: "boom"}},
		{ended(ErrLeaseLost), errBoom, &wire.Result{Outcome: wire.Result_OUTCOME_RELEASED, Error: "boom"}},
		{ended(ErrStopping), errBoom, &wire.Result{Outcome: wire.Result_OUTCOME_RELEASED, Error: "boom"}},
		{late, errBoom, &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Code: "timeout",
			Ending: wire.Result_ENDING_TIMED_OUT, Error: "boom"}},
		{late, Code("dns", errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Code: "dns",
			Ending: wire.Result_ENDING_TIMED_OUT, Error: "boom"}},
		{late, Doubt(errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_UNKNOWN, Error: "boom"}},
		{ended(ErrStopping), Permanent(errBoom), &wire.Result{Outcome: wire.Result_OUTCOME_FAILED, Final: true,
			Error: "boom"}},
		{ended(ErrStopping), &panicError{value: "x"}, &wire.Result{
			Outcome: wire.Result_OUTCOME_FAILED, Code: "panic", Ending: wire.Result_ENDING_PANICKED, Error: "panic: x",
		}},
	}
	for _, test := range tests {
		got := new(wire.Result)
		judge(got, test.ctx, test.err)
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%v: %s", test.err, diff)
		}
	}
}

// A delay is rounded up: a short one is not none, and the longest is no short one.
func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		math.MaxInt64: math.MaxInt64/1_000_000 + 1} {
		if got := milliseconds(d); got != want {
			t.Errorf("%d ns: %d ms, want %d", d, got, want)
		}
	}
}

func TestNilStaysNil(t *testing.T) {
	for name, err := range map[string]error{
		"Permanent": Permanent(nil), "RetryAfter": RetryAfter(1, nil), "Doubt": Doubt(nil), "Code": Code("x", nil),
	} {
		if err != nil {
			t.Errorf("%s(nil) is %v", name, err)
		}
	}
	if !errors.Is(Code("x", Permanent(errBoom)), errBoom) {
		t.Error("the cause is lost")
	}
}
