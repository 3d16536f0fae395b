package storetest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/ledger/payload"
)

// defineConflicts: only a live process that works the kind with other settings, or with another plugin, prevents new
// ones. The error names that process and the differences. Unfinished items take the new settings.
func defineConflicts(t *testing.T, h *harness) {
	beat := func(name, definition, config string) {
		a := ledger.Agent{Name: name, Host: "box", PID: 7, Kinds: map[string]string{"k": definition}}
		if config != "" {
			a.Configs = map[string]string{"k": config}
		}
		h.ok(h.l.Beat(h.ctx, a, time.Minute))
	}
	define := func(d, config string) error {
		err := h.l.Define(h.ctx, ledger.Agent{Name: "me"}, "k", d, config)
		h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "me"}, 0)) // remove the heartbeat: this process does not work
		return err
	}
	inForce := func(definition, config string) {
		t.Helper()
		k, err := h.l.Kind(h.ctx, "k")
		h.ok(err)
		equal(t, "definition", k.Definition, definition)
		equal(t, "config", k.Config, config)
	}
	h.ok(define("p@1.0+aaa", `{"command":["bad"],"wait":"1m"}`))
	h.addOne("ready")
	h.add(ledger.NewItem{Kind: "k", Key: "recurs", Every: "day"},
		ledger.NewItem{Kind: "k", Key: "later", Due: h.clock.now().Add(time.Hour)})
	lost := h.claimOne("k")
	h.ok(define("p@1.1+bbb", `{"command":["good"],"wait":"1m"}`)) // items are ready, waiting, recurring and leased
	inForce("p@1.1+bbb", `{"command":["good"],"wait":"1m"}`)
	h.end(lost, ledger.Done(nil))
	h.ok(define("p@1.1+bbb", `{"command":["good"],"wait":"2m"}`)) // only a setting for tuning differs
	inForce("p@1.1+bbb", `{"command":["good"],"wait":"2m"}`)

	beat("box/7", "p@1.1+bbb", `{"command":["good"],"wait":"9m"}`)
	h.ok(define("p@2.0+bbb", `{"command":["good"],"wait":"2m"}`)) // other version and tuning: they work together
	want := []definition.Difference{{Name: "command", Have: `["good"]`, Want: `["best"]`}, {Name: "wait", Have: `"9m"`}}
	conflict := refused(h, define("p@2.0+ccc", `{"command":["best"]}`))
	equal(t, "differences", conflict.Differences(), want)
	equal(t, "agents", len(conflict.Agents), 1)
	equal(t, "agent", conflict.Agents[0].Name, "box/7")
	equal(t, "host", conflict.Agents[0].Host, "box")
	equal(t, "pid", conflict.Agents[0].PID, 7)
	if text := conflict.Error(); !strings.Contains(text, `by box/7 since `) ||
		!strings.Contains(text, `command: ["good"] → ["best"]; wait: "9m" → not set`) {
		t.Error(text)
	}
	inForce("p@2.0+bbb", `{"command":["good"],"wait":"2m"}`)

	beat("box/7", "p@1.1+bbb", "") // a program without settings in its heartbeat: those in force count as its own
	equal(t, "differences", refused(h, define("q@1.0+bbb", `{"command":["good"],"wait":"3m"}`)).Differences(),
		[]definition.Difference{{Name: "wait", Have: `"2m"`, Want: `"3m"`}})
	h.clock.advance(2 * time.Minute) // its heartbeat has run out
	h.ok(define("q@1.0+ccc", `{"command":["best"]}`))
	inForce("q@1.0+ccc", `{"command":["best"]}`)
	h.is(define(strings.Repeat("x", bounds.MaxWorker+1), ""), ledger.ErrInvalid)
	h.is(define("", "{}"), ledger.ErrInvalid)
	h.is(define("q@1.0+ccc", "[]"), ledger.ErrInvalid)
	h.is(define("q@1.0+ccc", `{"a":"`+strings.Repeat("x", bounds.MaxConfig)+`"}`), ledger.ErrInvalid)
	h.is(h.l.Define(h.ctx, ledger.Agent{Name: "me"}, "K", "x@1+a", ""), ledger.ErrInvalid)
	inForce("q@1.0+ccc", `{"command":["best"]}`)
}

// defineTogether: of two processes that call Define before either works, the second is refused and its heartbeat
// removed. SetKind does not change the definition.
func defineTogether(t *testing.T, h *harness) {
	h.ok(h.l.Define(h.ctx, ledger.Agent{Name: "first"}, "new", "p@1.0+aaa", `{"a":1}`))
	refused(h, h.l.Define(h.ctx, ledger.Agent{Name: "second"}, "new", "p@1.0+bbb", `{"a":2}`))
	h.ok(h.l.Define(h.ctx, ledger.Agent{Name: "first"}, "new", "p@1.0+bbb", `{"a":2}`))
	agents, err := h.l.Agents(h.ctx)
	h.ok(err)
	equal(t, "agents", len(agents), 1)
	equal(t, "settings of the agent", agents[0].Configs, map[string]string{"new": `{"a":2}`})
	h.policy(ledger.Kind{Name: "new", MaxFailures: 2})
	k, err := h.l.Kind(h.ctx, "new")
	h.ok(err)
	equal(t, "definition", k.Definition+k.Config, `p@1.0+bbb{"a":2}`)
}

func refused(h *harness, err error) *ledger.DefinitionError {
	h.t.Helper()
	conflict, ok := errors.AsType[*ledger.DefinitionError](err)
	if !ok || !errors.Is(err, ledger.ErrConflict) {
		h.t.Fatalf("%v", err)
	}
	return conflict
}

// defaults: the remembered settings of a kind are kept, also when its policy is set anew.
func defaults(t *testing.T, h *harness) {
	d := payload.Defaults{}.Remember(map[string]json.RawMessage{"table": json.RawMessage(`"people"`),
		"types.age": json.RawMessage(`"int"`)})
	d["quotes"] = payload.Default{Value: json.RawMessage(`"no"`), Kept: true}
	d = d.Remember(map[string]json.RawMessage{"table": json.RawMessage(`"orders"`), "types.age": json.RawMessage(`"int"`),
		"quotes": json.RawMessage(`"yes"`)})
	h.policy(ledger.Kind{Name: "k", Defaults: d})
	h.policy(ledger.Kind{Name: "k", MaxFailures: 3})
	k, err := h.l.Kind(h.ctx, "k")
	h.ok(err)
	equal(t, "defaults", k.Defaults.String(), `[quotes="no" (kept) table="orders" (varied) types.age="int"]`)
	equal(t, "max failures", k.MaxFailures, 3)
	have, varied := k.DefaultFields()
	equal(t, "have", strings.Join(have, " "), "quotes types.age")
	equal(t, "varied", strings.Join(varied, " "), "table")
	k.OnLost = ledger.OnLostDoubt // a kind with on_lost = doubt uses only kept settings
	have, varied = k.DefaultFields()
	equal(t, "have", strings.Join(have, " "), "quotes")
	equal(t, "varied", len(varied), 0)
	_, err = h.l.EditKind(h.ctx, "test", "k", func(k *ledger.Kind, _ bool) { k.Defaults = nil })
	h.ok(err)
	k, err = h.l.Kind(h.ctx, "k")
	h.ok(err)
	equal(t, "no defaults", len(k.Defaults), 0)
	for message, wrong := range map[string]payload.Defaults{`"a" is not JSON`: {"a": {Value: json.RawMessage("{")}},
		"has no name": {"": {Value: json.RawMessage("1")}}} {
		err := h.l.SetKind(h.ctx, "test", ledger.Kind{Name: "k", Defaults: wrong})
		if h.is(err, ledger.ErrInvalid); !strings.Contains(err.Error(), message) {
			t.Error(err)
		}
	}
}

// reopenedPayload: an item that is opened again keeps its payload, except for the fields that are given.
func reopenedPayload(t *testing.T, h *harness) {
	const loads = `{"path":"/a","modified":"1","table":"people","types":{"a":"int","b":"date"}}`
	checks := ledger.NewItem{Kind: "k", Key: "/a", Fingerprint: "1", Payload: []byte(`{"path":"/a","modified":"1"}`),
		Given: []string{"path", "modified"}}
	id := h.add(ledger.NewItem{Kind: "k", Key: "/a", Fingerprint: "1", Payload: []byte(loads)})[0].ID
	payload := func() string { return string(h.item(id).Payload) }
	again := func(what string, n ledger.NewItem, verdict ledger.Verdict, want string) {
		t.Helper()
		equal(t, what, h.add(n)[0].Verdict, verdict)
		equal(t, what+": payload", payload(), want)
	}
	again("ready", checks, ledger.VerdictKnown, loads)
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	checks.Again.Dead = true
	again("dead", checks, ledger.VerdictReopened, loads)
	h.end(h.claimOne("k"), ledger.Done(nil))
	again("done", checks, ledger.VerdictKnown, loads)
	h.clock.advance(time.Minute)
	checks.Again.DoneBefore = h.clock.now()
	again("again", checks, ledger.VerdictReopened, loads)

	other := checks
	other.Given = []string{"path", "types.a"}
	other.Payload = []byte(`{"path":"/a","modified":"1","table":"x","types":{"a":"bool"}}`)
	again("open", other, ledger.VerdictDiffers, loads)
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	const mended = `{"modified":"1","path":"/a","table":"people","types":{"a":"bool","b":"date"}}`
	again("given", other, ledger.VerdictReopened, mended)
	changed := checks
	changed.Fingerprint, changed.Payload = "2", []byte(`{"path":"/a","modified":"2","delimiter":";"}`)
	again("changed", changed, ledger.VerdictChanged,
		`{"modified":"2","path":"/a","table":"people","types":{"a":"bool","b":"date"}}`)
	whole := checks
	whole.Fingerprint, whole.Payload, whole.Given = "3", []byte(`{"path":"/a","types":{}}`), []string{"path", "types"}
	again("a whole object", whole, ledger.VerdictChanged, `{"modified":"2","path":"/a","table":"people","types":{}}`)
	whole.Fingerprint, whole.Given = "4", nil
	again("all of it", whole, ledger.VerdictChanged, `{"path":"/a","types":{}}`)
	whole.Fingerprint, whole.Given, whole.Payload = "5", []string{"path"}, []byte("no object")
	again("no object", whole, ledger.VerdictChanged, "no object")
	h.end(h.claimOne("k"), ledger.Done(nil))

	daily := ledger.NewItem{Kind: "k", Key: "/d", Every: "day", Payload: []byte(`{"path":"/d"}`), Given: []string{"path"}}
	id = h.add(daily)[0].ID
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	daily.Again.Dead = true
	again("failed in this round", daily, ledger.VerdictKnown, `{"path":"/d"}`)
	daily.Payload, daily.Given = []byte(`{"path":"/d","skip":1}`), []string{"path", "skip"}
	again("failed in this round, given another field", daily, ledger.VerdictReopened, `{"path":"/d","skip":1}`)
	ls := h.claimOne("k")
	equal(t, "round", ls.Round, "2026-11-20")
	h.end(ls, ledger.Permanent(errTest))
	again("failed with it", daily, ledger.VerdictKnown, `{"path":"/d","skip":1}`)
}
