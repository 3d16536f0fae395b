package sdktest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, worker()) }

type config struct {
	Greeting string `json:"greeting" default:"hello" schema:"minLength=1"`
	Journal  string `json:"journal" doc:"a file that gets a line for each effect"`
	Starts   string `json:"starts" doc:"a file that gets a line for each process"`
	Token    string `json:"token" secret:"true"`
}

type in struct {
	Do   string `json:"do" input:"line"`
	Loud bool   `json:"loud" default:"true"`
}

// Open refuses the journal "none", and notes each process in Starts.
func (c *config) Open(context.Context) error {
	if c.Journal == "none" {
		return errors.New("there is no such journal")
	}
	if c.Starts == "" {
		return nil
	}
	f, err := os.OpenFile(c.Starts, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, os.Getpid())
	return errors.Join(err, f.Close())
}

func worker() *sdk.Plugin {
	p := sdk.New("worker", "0.1.0", work)
	p.Emits, p.Previous = []string{"article"}, true
	p.Examples = []sdk.Example{{Payload: in{Do: "greet"}, Output: "HELLO"}, {Doc: "no output", Payload: in{Do: "emit"}}}
	return p
}

func work(ctx context.Context, cfg *config, it sdk.Item[in]) (string, error) {
	it.Log.Info("begun", "do", it.Payload.Do)
	switch it.Payload.Do {
	case "greet":
		if it.Payload.Loud {
			return strings.ToUpper(cfg.Greeting + cfg.Token), nil
		}
		return cfg.Greeting, nil
	case "emit":
		due := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		return "", it.Emit(sdk.Child{Kind: "article", Key: "one", Payload: []int{1}, Due: due, Priority: 1, Fingerprint: "f"})
	case "fail":
		return "so far", sdk.RetryAfter(time.Minute, sdk.Code("busy", errors.New("come back")))
	case "fail late":
		return "", sdk.RetryAfter(math.MaxInt64, errors.New("come back"))
	case "count":
		for i := range 5 {
			it.Progress(int64(i+1), 5, "steps")
		}
		<-ctx.Done()
		return "", ctx.Err()
	case "wait":
		<-ctx.Done()
		return "", ctx.Err()
	case "exit":
		os.Exit(4)
	case "again":
		var before string
		found, err := it.Previous(&before)
		return fmt.Sprint(before, "+", found), err
	case "once":
		return once(cfg.Journal, it.IdempotencyKey)
	}
	return "", sdk.Skip("nothing to do")
}

// once has its effect once for each idempotency key.
func once(journal, key string) (string, error) {
	before, err := os.ReadFile(journal)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if strings.Contains(string(before), key+"\n") {
		return "", sdk.Skip("done before")
	}
	return "done now", os.WriteFile(journal, append(before, key+"\n"...), 0o600)
}

// host returns a Host, and checks at the end that it has left no goroutine.
func host(t *testing.T, o sdktest.Options) *sdktest.Host {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) }) // after the host has stopped
	return sdktest.New(t, worker(), o)
}

// Both ways to run a plugin give the same.
func TestRun(t *testing.T) {
	bothWays(t, func(t *testing.T, inProcess bool) {
		h := host(t, sdktest.Options{Config: config{Greeting: "good day"}, Secrets: map[string]string{"token": "s"},
			InProcess: inProcess})
		r := h.Run(sdktest.Task{Payload: in{Do: "greet"}})
		if got := sdktest.Decode[string](t, r); r.Outcome != "done" || got != "GOOD DAYS" {
			t.Errorf("%+v", r)
		}
		if len(r.Log) != 1 || !strings.HasSuffix(r.Log[0], "level=INFO msg=begun do=greet") {
			t.Errorf("%q", r.Log)
		}
		r = h.Run(sdktest.Task{Payload: map[string]any{"do": "greet", "loud": false}})
		if got := sdktest.Decode[string](t, r); got != "good day" {
			t.Errorf("%+v", r)
		}
		r = h.Run(sdktest.Task{Payload: in{Do: "fail"}})
		r.Log = nil
		if diff := cmp.Diff(sdktest.Result{Outcome: "failed", Delay: time.Minute, Code: "busy", Error: "come back",
			Output: []byte(`"so far"`)}, r); diff != "" {
			t.Error(diff)
		}
		r = h.Run(sdktest.Task{Payload: in{Do: "emit"}})
		want := []sdk.Child{{
			Kind: "article", Scope: "worker/4", Key: "one", Payload: raw(`[1]`), Fingerprint: "f", Priority: 1,
			Due: time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC),
		}}
		if diff := cmp.Diff(want, r.Emitted); diff != "" {
			t.Error(diff)
		}
		if r = h.Run(sdktest.Task{Payload: in{Do: "fail late"}}); r.Delay < math.MaxInt64-time.Millisecond {
			t.Error(r.Delay)
		}
		r = h.Run(sdktest.Task{Payload: map[string]any{"dos": 1}})
		if r.Outcome != "failed" || !r.Final || r.Code != "payload" {
			t.Errorf("%+v", r)
		}
		var scopes []string
		for _, id := range []int64{8, 0} { // ids that are given are not chosen again
			scopes = append(scopes, h.Run(sdktest.Task{ID: id, Payload: in{Do: "emit"}}).Emitted[0].Scope)
		}
		for _, r := range h.RunAll(sdktest.Task{ID: 10, Payload: in{Do: "emit"}}, sdktest.Task{Payload: in{Do: "emit"}}) {
			scopes = append(scopes, r.Emitted[0].Scope)
		}
		slices.Sort(scopes)
		if len(slices.Compact(scopes)) != 4 {
			t.Errorf("scopes %s", scopes)
		}
	})
}

func bothWays(t *testing.T, test func(t *testing.T, inProcess bool)) {
	t.Run("process", func(t *testing.T) { test(t, false) })
	t.Run("in process", func(t *testing.T) { test(t, true) })
}

func TestFaults(t *testing.T) {
	bothWays(t, func(t *testing.T, inProcess bool) {
		h := host(t, sdktest.Options{InProcess: inProcess})
		r := h.Run(sdktest.Task{Payload: in{Do: "wait"}, Fault: sdktest.Cancel})
		if r.Outcome != "cancelled" {
			t.Errorf("%+v", r)
		}
		r = h.Run(sdktest.Task{Payload: in{Do: "count"}, Fault: sdktest.Cancel, AtProgress: 3})
		if r.Outcome != "cancelled" || len(r.Progress) != 5 ||
			r.Progress[2] != (sdktest.Progress{Done: 3, Total: 5, Unit: "steps"}) {
			t.Errorf("%+v", r)
		}
		r = h.Run(sdktest.Task{Payload: in{Do: "wait"}, Fault: sdktest.LoseLease})
		if r.Outcome != "released" || !r.Refused {
			t.Errorf("%+v", r)
		}
	})
}

func TestKill(t *testing.T) {
	h := host(t, sdktest.Options{})
	// One of these has no credit when the others kill the process.
	kill := sdktest.Task{Payload: in{Do: "wait"}, Fault: sdktest.KillPlugin}
	for _, r := range h.RunAll(slices.Repeat([]sdktest.Task{kill}, 2*runtime.GOMAXPROCS(0)+1)...) {
		if r.Outcome != "crashed" {
			t.Errorf("%+v", r)
		}
	}
	tests := []struct {
		task sdktest.Task
		want string
	}{
		{sdktest.Task{Payload: in{Do: "count"}, Fault: sdktest.KillPlugin, AtProgress: 2}, "crashed"},
		{sdktest.Task{Payload: in{Do: "greet"}}, "done"},
		{sdktest.Task{Payload: in{Do: "wait"}, Fault: sdktest.KillHost}, "lost"},
		{sdktest.Task{Payload: in{Do: "greet"}}, "done"},
		{sdktest.Task{Payload: in{Do: "exit"}}, "crashed"},
		{sdktest.Task{Payload: in{Do: "greet"}}, "done"},
	}
	for _, test := range tests {
		if r := h.Run(test.task); r.Outcome != test.want {
			t.Errorf("%+v, want %s", r, test.want)
		}
	}
}

func TestDeliver2(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	h := host(t, sdktest.Options{Config: config{Journal: journal}})
	r := h.Run(sdktest.Task{Payload: in{Do: "once"}, Fault: sdktest.Deliver2})
	if r.Outcome != "skipped" || r.Error != "done before" {
		t.Errorf("%+v", r)
	}
	effects, err := os.ReadFile(journal)
	if err != nil || string(effects) != "worker//once/1\n" {
		t.Errorf("%q %v", effects, err)
	}
}

func TestRunAll(t *testing.T) {
	h := host(t, sdktest.Options{})
	tasks := slices.Repeat([]sdktest.Task{{Payload: in{Do: "greet"}}, {Payload: in{Do: "fail"}}}, 25)
	for i, r := range h.RunAll(tasks...) {
		if want := []string{"done", "failed"}[i%2]; r.Outcome != want {
			t.Errorf("task %d: %+v", i, r)
		}
	}
}

// After a fault, tasks that are run together have one process.
func TestRunAllAfterFault(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	h := host(t, sdktest.Options{Config: config{Starts: starts}})
	h.Run(sdktest.Task{Payload: in{Do: "wait"}, Fault: sdktest.KillPlugin})
	h.RunAll(slices.Repeat([]sdktest.Task{{Payload: in{Do: "greet"}}}, 8)...)
	if pids, err := os.ReadFile(starts); err != nil || bytes.Count(pids, []byte("\n")) != 2 {
		t.Errorf("%q %v, want two processes", pids, err)
	}
}

// TestRefused: an author can test which configs a plugin refuses, and with what words.
func TestRefused(t *testing.T) {
	bothWays(t, func(t *testing.T, inProcess bool) {
		t.Cleanup(func() { goleak.VerifyNone(t) })
		for want, c := range map[string]any{
			"greeting: ":                 map[string]any{"greeting": ""}, // a zero, and not the default
			"there is no such journal":   config{Journal: "none"},
			"gretting: there is no such": map[string]any{"gretting": "x"},
		} {
			err := sdktest.Refused(t, worker(), sdktest.Options{Config: c, InProcess: inProcess})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("config %v: %v, want %q", c, err, want)
			}
		}
		if err := sdktest.Refused(t, worker(), sdktest.Options{InProcess: inProcess}); err != nil {
			t.Errorf("the default: %v", err)
		}
	})
}

// A wrong use of sdktest fails the test, and the message explains it.
func TestMisuse(t *testing.T) {
	tests := []struct {
		name, want string
		run        func(testing.TB)
	}{
		{"bad config", "greeting: must not be empty", func(t testing.TB) {
			sdktest.New(t, worker(), sdktest.Options{Config: map[string]any{"greeting": ""}})
		}},
		{"bad config, in words", "the plugin refuses the config {\"greeting\":\"\"}: greeting: must not be empty\ngive it " +
			"what it needs in Options.Config", func(t testing.TB) {
			sdktest.New(t, worker(), sdktest.Options{InProcess: true, Config: map[string]any{"greeting": ""}})
		}},
		{"no such secret", "greeting: is not a secret", func(t testing.TB) {
			sdktest.New(t, worker(), sdktest.Options{Secrets: map[string]string{"greeting": "x"}})
		}},
		{"kill in process", "cannot be killed", func(t testing.TB) {
			sdktest.New(t, worker(), sdktest.Options{InProcess: true}).Run(sdktest.Task{Payload: in{Do: "greet"},
				Fault: sdktest.KillPlugin})
		}},
		{"decode", "nothing to do", func(t testing.TB) {
			h := sdktest.New(t, worker(), sdktest.Options{InProcess: true})
			sdktest.Decode[string](t, h.Run(sdktest.Task{Payload: in{Do: "nothing"}}))
		}},
		{"failed before", "then done", func(t testing.TB) {
			h := sdktest.New(t, worker(), sdktest.Options{InProcess: true})
			t.Errorf("at first")
			t.Errorf("then %s", h.RunAll(sdktest.Task{Payload: in{Do: "greet"}})[0].Outcome)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := failureOf(t, test.run); !strings.Contains(got, test.want) {
				t.Errorf("fails with %q, want %q", got, test.want)
			}
		})
	}
}

func TestConformance(t *testing.T) { sdktest.Conformance(t, worker()) }

func TestTimeout(t *testing.T) {
	bothWays(t, func(t *testing.T, inProcess bool) {
		h := host(t, sdktest.Options{InProcess: inProcess})
		r := h.Run(sdktest.Task{Payload: in{Do: "wait"}, Timeout: time.Millisecond})
		if r.Outcome != "failed" || r.Code != "timeout" {
			t.Errorf("%+v", r)
		}
	})
}

// While ledgerd takes nothing, the plugin goes on and loses nothing.
func TestSlowAck(t *testing.T) {
	tests := map[string]struct {
		inProcess bool
		task      sdktest.Task
		code      string
		reports   int
	}{
		"the result": {true, sdktest.Task{Payload: in{Do: "greet"}}, "", 0},
		"progress": {false, sdktest.Task{Payload: in{Do: "count"}, AtProgress: 2, Timeout: 10 * time.Millisecond},
			"timeout", 5},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := host(t, sdktest.Options{InProcess: test.inProcess})
			test.task.Fault = sdktest.SlowAck
			began := time.Now()
			r := h.Run(test.task)
			if took := time.Since(began); took < time.Second || r.Code != test.code || len(r.Progress) != test.reports {
				t.Errorf("%+v after %v", r, took)
			}
		})
	}
}

func TestGolden(t *testing.T) { sdktest.Golden(t, worker()) }

// A change of the plugin's description fails the test, and the message has the next step.
func TestGoldenDiffers(t *testing.T) {
	changed := worker()
	changed.Emits = []string{"photo"}
	unknown := sdk.New("unknown", "0.1.0", work)
	tests := map[string]struct {
		plugin *sdk.Plugin
		want   string
	}{
		"changed": {changed, "the description of plugin worker has changed, first in line 8 of " +
			"testdata/worker.describe.json:\n" +
			"  was: \"article\"\n  is:  \"photo\"\nif that is meant: go test -update"},
		"new": {unknown, "there is no testdata/unknown.describe.json yet: go test -update writes it"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := failureOf(t, func(t testing.TB) { sdktest.Golden(t, test.plugin) }); got != test.want {
				t.Errorf("fails with\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// A task may bring what the last completed round put out, in a process and in the test's own.
func TestPrevious(t *testing.T) {
	bothWays(t, func(t *testing.T, inProcess bool) {
		h := host(t, sdktest.Options{InProcess: inProcess})
		for _, c := range []struct {
			previous any
			want     string
		}{{nil, `"+false"`}, {"before", `"before+true"`}} {
			if r := h.Run(sdktest.Task{Payload: in{Do: "again"}, Previous: c.previous}); string(r.Output) != c.want {
				t.Errorf("after %v: %s, %s", c.previous, r.Output, r.Error)
			}
		}
		r := h.Run(sdktest.Task{Payload: in{Do: "again"}, Previous: []int{1}})
		if r.Outcome != "failed" || !strings.Contains(r.Error, "previous output") {
			t.Errorf("an output of another shape: %+v", r)
		}
	})
}
