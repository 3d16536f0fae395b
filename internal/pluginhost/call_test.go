//go:build unix

package pluginhost

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
)

// Every call to a plugin that does not answer is given up, and the error names plugin, kind and call.
func TestCallTime(t *testing.T) {
	const most = 5 * time.Second // bounds the start of the process, too
	for answer, phase := range map[string]Phase{"hang-validate": PhaseValidate, "hang-open": PhaseOpen,
		"stuck": PhaseCheck} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			c := Config{Spec: Spec{Place: place(t), CallTime: most}, Kind: "stage", Settings: []byte(`{"answer":"` + answer +
				`"}`)}
			began := time.Now()
			_, err := Check(t.Context(), c)
			failed, ok := errors.AsType[*CallError](err)
			if !ok || failed.Phase != phase || !failed.TimedOut {
				t.Fatalf("%T %v", err, err)
			}
			for _, want := range []string{"plugin actor (" + c.Place.Path + ") of kind stage: ", string(phase),
				"no answer within 5s"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %q", want, err)
				}
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// An Open that fails is no refusal of the config: another config would not help.
func TestOpenFails(t *testing.T) {
	c := Config{Spec: Spec{Place: place(t)}, Kind: "stage", Settings: []byte(`{"answer":"away"}`)}
	_, err := Start(t.Context(), c)
	if _, ok := errors.AsType[*OpenError](err); !ok || strings.Contains(err.Error(), "refuses") {
		t.Errorf("%T %v", err, err)
	}
	if err := Validate(t.Context(), c); err != nil {
		t.Errorf("its config is fine: %v", err)
	}
	c.Settings = []byte(`{"answer":"crash"}`)
	if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "stderr: cannot open") {
		t.Errorf("%v", err)
	}
}

// The error of a call during which the process died tells how the process ended. gRPC reports the call as unavailable,
// or as cancelled if the connection was closed before.
func TestClosedConnection(t *testing.T) {
	for _, broken := range []error{grpc.ErrClientConnClosing, status.Error(codes.Unavailable, "EOF")} {
		spec := Spec{Place: place(t)}
		a, err := spec.start(t.Context())
		must.OK(t, err)
		err = a.do(t.Context(), PhaseOpen, func(context.Context) error {
			if err := syscall.Kill(a.proc.PID(), syscall.SIGKILL); err != nil {
				t.Error(err)
			}
			return broken
		})
		if crash, ok := errors.AsType[*pluginproc.CrashError](err); !ok || crash.Signal != int(syscall.SIGKILL) {
			t.Errorf("%v: %T %v", broken, err, err)
		}
	}
}

// Secrets that a plugin prints are in no log, error, output or log of an item.
func TestSecretsAreHidden(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{MaxCrashes: 1})
	ids := r.add("tell")
	r.drain()
	ids = append(ids, r.add("die-telling")...)
	r.drain()
	told := r.log.String()
	for i, id := range ids {
		a := r.attempts(id)[0]
		told += a.Error + a.Log + string(a.Output)
		if text := []string{"refused for ***", "last words: ***"}[i]; !strings.Contains(a.Error, text) {
			t.Errorf("error %q, want %q", a.Error, text)
		}
	}
	if strings.Contains(told, password) || !strings.Contains(told, "to stderr: ***") ||
		!strings.Contains(told, `"my ***"`) {
		t.Errorf("told: %s", told)
	}
}
