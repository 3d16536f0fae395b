package pluginhost

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// next is the config of another version: its answers are different.
func (r *rig) next(t *testing.T, answer string) Config {
	return Config{Spec: Spec{Place: place(t), Logger: slog.New(slog.NewTextHandler(r.log, nil))},
		Settings: ledger.JSON(map[string]any{"dir": r.dir, "answer": answer})}
}

func admitted(Defined) error { return nil }

// Under load the plugin is replaced twice: what was begun is finished by the process that began it,
// everything is done once, and each result names its version.
func TestReplace(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	ids := r.addMany(12, "gate")
	wait := r.draining()
	r.waitBegun(4)
	first, before := r.host.Definition(), r.host.PID()
	asked := ""
	if err := r.host.Replace(t.Context(), r.next(t, "new"), time.Minute, func(d Defined) error {
		asked = d.Definition()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	second := r.host.Definition()
	if asked != second || first == second || r.host.PID() == before || r.host.Restarts() != 0 {
		t.Errorf("%q was asked for, now %q after %q, %d restarts", asked, second, first, r.host.Restarts())
	}
	r.waitBegun(8) // four with each
	r.open()
	wait()
	ids = append(ids, r.addMany(300, "answer")...)
	wait = r.draining()
	if err := r.host.Replace(t.Context(), r.next(t, "newest"), time.Minute, admitted); err != nil {
		t.Fatal(err)
	}
	wait()
	r.want(ledger.StateDone, "", ids...)
	by := map[string]int{}
	for _, id := range ids {
		as := r.attempts(id)
		last := as[len(as)-1]
		by[last.Worker+string(last.Output)]++
		for _, a := range as[:len(as)-1] {
			if a.Outcome != ledger.OutcomeReleased {
				t.Errorf("item %d: an attempt before the last one is %s: %s", id, a.Outcome, a.Error)
			}
		}
	}
	third := r.host.Definition()
	if by[first+`"yes"`] < 4 || by[second+`"new"`] < 4 || by[first+`"yes"`]+by[second+`"new"`]+
		by[third+`"newest"`] != len(ids) {
		t.Errorf("done by %v", by)
	}
	r.waitFor("the first process is gone", func() bool { return errors.Is(syscall.Kill(before, 0), syscall.ESRCH) })
}

// The old process dies while it finishes: what it had has crashed and is done by the new one, which
// works on, and is not blamed.
func TestReplaceOldDies(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{Backoff: ledger.Backoff{Base: time.Millisecond, Cap: time.Millisecond}})
	ids := r.addMany(4, "gate")
	wait := r.draining()
	r.waitBegun(4)
	old := r.host.PID()
	if err := r.host.Replace(t.Context(), r.next(t, "new"), time.Minute, admitted); err != nil {
		t.Fatal(err)
	}
	now := r.host.PID()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.open()
	wait()
	r.want(ledger.StateDone, "", ids...)
	for _, id := range ids {
		if as := r.attempts(id); len(as) != 2 || as[0].Outcome != ledger.OutcomeCrashed || string(as[1].Output) != `"new"` {
			t.Errorf("item %d: %+v", id, as)
		}
	}
	if r.host.PID() != now || len(r.host.breaker.crashes) != 0 || r.host.Restarts() != 0 {
		t.Errorf("process %d after %d, %d crashes, %d restarts", r.host.PID(), now, len(r.host.breaker.crashes),
			r.host.Restarts())
	}
}

// A version that cannot take over changes nothing.
func TestReplaceRefused(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	before, definition := r.host.PID(), r.host.Definition()
	missing := r.next(t, "new")
	missing.Place.Path = "/nowhere/ledgerd-plugin-actor"
	for name, c := range map[string]Config{"it is not there": missing, "its config is refused": r.next(t, "no"),
		"it dies while it opens": r.next(t, "crash")} {
		if err := r.host.Replace(t.Context(), c, time.Minute, admitted); err == nil {
			t.Errorf("%s, and took over", name)
		}
	}
	refused := errors.New("others work with other settings")
	if err := r.host.Replace(t.Context(), r.next(t, "new"), time.Minute, func(Defined) error {
		return refused
	}); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if r.host.PID() != before || r.host.Definition() != definition || !r.host.Spec().Same(Spec{Place: place(t)}) {
		t.Errorf("process %d with %q after %d with %q", r.host.PID(), r.host.Definition(), before, definition)
	}
	ids := r.addMany(10, "answer")
	r.drain()
	r.want(ledger.StateDone, "", ids...)
}

// An item of the old process that does not end in its grace is released and done by the new one; where
// it must not be begun twice it is in doubt.
func TestReplaceGrace(t *testing.T) {
	for onLost, state := range map[ledger.OnLost]ledger.State{ledger.OnLostRepeat: ledger.StateDone,
		ledger.OnLostDoubt: ledger.StateDoubt} {
		t.Run(string(onLost), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, defaultTimes, ledger.Kind{OnLost: onLost})
			id := r.add("first-hang")[0]
			wait := r.draining()
			r.waitBegun(1)
			if err := r.host.Replace(t.Context(), r.next(t, "new"), 10*time.Millisecond, admitted); err != nil {
				t.Fatal(err)
			}
			wait()
			if it := r.item(id); it.State != state || it.Crashes+it.Failures != 0 {
				t.Errorf("%s after %d crashes and %d failures: %s", it.State, it.Crashes, it.Failures, it.Error)
			}
		})
	}
}

// A plugin that crashes again and again is not waited for when another version has come.
func TestReplaceCrashing(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{MaxCrashes: 100, Backoff: ledger.Backoff{Base: time.Millisecond,
		Cap: time.Millisecond}})
	r.host.mu.Lock()
	for range breakerAt - 1 {
		r.host.breaker.crashed(time.Now().Add(-time.Minute))
	}
	r.host.mu.Unlock()
	poison := r.add("first-die")[0]
	r.drain()
	if _, until := r.host.Limit(); time.Until(until) < time.Minute {
		t.Fatalf("the breaker is not open: again at %v", until)
	}
	if err := r.host.Replace(t.Context(), r.next(t, "new"), time.Minute, admitted); err != nil {
		t.Fatal(err)
	}
	r.drain()
	r.want(ledger.StateDone, "", poison)
}

// Results of the old process while it is replaced are taken; for the race detector.
func TestReplaceDuringProgress(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	s, stop, stopped := r.host.current(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-r.said:
			default:
				s.report(&task{Item: &wire.Item{}}, &wire.Progress{Id: 1, Attempt: 1})
			}
		}
	}()
	err := r.host.Replace(t.Context(), r.next(t, "new"), time.Minute, admitted)
	close(stop)
	<-stopped
	if err != nil || r.host.current() == s {
		t.Errorf("not replaced: %v", err)
	}
}

// An item that the process of before had not got yet brings what the new one asks for, and the old one
// did not.
func TestReplaceRemembers(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	c := r.next(t, "new")
	c.LastOutput = func(context.Context, int64) ([]byte, error) { return []byte(`"before"`), nil }
	old := r.host.current()
	settled := make(chan ledger.Result, 1)
	lease := &ledger.Lease{Item: ledger.Item{ID: 1, Attempt: 2, Kind: "actor", Key: "again",
		Stored: ledger.Stored{Payload: []byte(`{"do":"again"}`)}}}
	noCredits, _ := without(t, r.host, 1, 0)
	noCredits.work.Add(&task{Of: given{lease, func(res ledger.Result) { settled <- res }}, Item: item(t.Context(), lease),
		Context: t.Context()})
	r.host.mu.Lock()
	old.setup.about.previous = false
	r.host.session = &session{host: r.host, proc: old.proc, setup: old.setup, work: noCredits.work}
	r.host.mu.Unlock()
	if err := r.host.Replace(t.Context(), c, time.Minute, admitted); err != nil {
		t.Fatal(err)
	}
	if res := <-settled; string(res.Output) != `"before+true"` {
		t.Errorf("%+v", res)
	}
}

// Every result and heartbeat has the version: one that a ledger does not take is refused with the plugin.
func TestCheckVersion(t *testing.T) {
	for version, fine := range map[string]bool{
		"": true, "1.0.0-rc.1+build.7": true, "one of ours": true, strings.Repeat("1", longestVersion): true,
		strings.Repeat("1", longestVersion+1): false, "1\x00": false, "1\n2": false, "\xff": false,
	} {
		if err := checkVersion(version); (err == nil) != fine {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// A host that was closed takes over nothing, and leaves no process.
func TestReplaceClosed(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	r.host.Close(time.Second)
	err := r.host.Replace(t.Context(), r.next(t, "new"), time.Minute, admitted)
	if !errors.Is(err, errClosed) {
		t.Errorf("error %v", err)
	}
}

// Another version with the same settings works the same kind, also if it has more of them; with
// other settings, or if what was set to the default is none any more, it does not. A value that is
// not set is the default of each version.
func TestDefinitionOfVersions(t *testing.T) {
	definition := func(version, fields, config string) string {
		schema, err := settings.Compile([]byte(`{"type":"object","properties":{` + fields + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		s, err := (&Description{Name: "p", Version: version, Config: schema}).configure(&Config{
			Spec: Spec{hide: redact.New()}, Settings: []byte(config)})
		if err != nil {
			t.Fatal(err)
		}
		_, _, digest := definition.Split(s.definition)
		return digest
	}
	const quality = `"quality":{"type":"integer","default":80},"box":{"type":"object","properties":{"w":{"type":"integer","default":1}}}`
	const more = quality + `,"strip":{"type":"boolean","default":true}`
	plain := definition("1.0.0", quality, `{}`)
	for _, tt := range []struct {
		fields, config string
		same           bool
	}{
		{more, `{}`, true},
		{more, `{"quality":80}`, true},
		{more, `{"quality":80,"box":{"w":1},"strip":true}`, true},
		{more, `{"strip":false}`, false},
		{more, `{"quality":81}`, false},
		{more, `{"box":{"w":2}}`, false},
		{strings.Replace(quality, "80", "90", 1), `{"quality":80}`, false},
		{strings.Replace(quality, "80", "90", 1), `{}`, true},
	} {
		if got := definition("1.1.0", tt.fields, tt.config); (got == plain) != tt.same {
			t.Errorf("%s with %s: %s beside %s", tt.fields, tt.config, got, plain)
		}
	}
}
