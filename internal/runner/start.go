package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// absence is why a kind is not worked here.
type absence struct {
	reason string
	code   string // of the reason, for programs
	pause  time.Duration
	at     time.Time // when it was found
	again  time.Time // of the next try; zero if nothing here can work it
	config string    // the settings that it is to be worked with, where another process has others
}

// longestAbsence bounds the time between two tries to take up a kind.
const longestAbsence = time.Minute

// startedKind is the result of starting the plugin of a kind.
type startedKind struct {
	name string
	kind *kinds.Kind // nil if its plugin does not even describe itself
	host *pluginhost.Host
	err  error
}

// startPlugins starts the plugins of these kinds, all at the same time, and sends each result to the channel.
func (p *Pool) startPlugins(ctx context.Context, names []string, to chan<- startedKind) {
	p.mu.Lock()
	for _, name := range names {
		p.starting[name] = true
	}
	p.mu.Unlock()
	agent := p.Agent.Name
	now := *p.local // a config that is read anew meanwhile is for the next try
	for _, name := range names {
		go func() {
			s := startedKind{name: name}
			s.kind, s.host, s.err = p.startKind(ctx, &now, agent, name)
			to <- s
		}()
	}
}

// startKind starts the plugin of a kind.
func (p *Pool) startKind(ctx context.Context, lc *kinds.Local, agent, name string) (*kinds.Kind, *pluginhost.Host,
	error) {
	k, err := p.workable(ctx, lc, name)
	if err != nil {
		return k, nil, err
	}
	k.Plugin.Spec.Logger = k.Plugin.Spec.Logger.With("kind", name, "agent", agent)
	h, err := lc.StartPlugin(ctx, k, p.With, p.hostConfig())
	return k, h, err
}

// workable resolves a kind that must have a plugin here.
func (p *Pool) workable(ctx context.Context, lc *kinds.Local, name string) (*kinds.Kind, error) {
	k, err := lc.Resolve(ctx, p.Ledger, name, "")
	if err == nil && k.Plugin == nil {
		err = lc.NoPluginFor(ctx, k, "plugins: ledgerd plugin ls")
	}
	return k, err
}

// NameAgent names the worker for the kinds that are taken up next: by the name of the pool, or by the next number
// after it that no other live process has. If no worker has the last name yet, it stays.
func (p *Pool) NameAgent(ctx context.Context) error {
	if p.Agent.Name != "" && !p.taken {
		return nil
	}
	live, err := p.Ledger.Agents(ctx)
	if err != nil {
		return err
	}
	others := kinds.AsAgent(p.Name).Namesakes(live)
	if p.Agent.Name == "" && len(others) > 0 {
		o := others[0]
		p.local.Log.Warn("another live process has the same agent name; give each daemon its own", "agent", p.Name,
			"other", o.Name, "host", o.Host, "pid", o.PID, "since", o.StartedAt)
	}
	taken := func(a ledger.Agent) bool { return a.Name == slotName(p.Name, p.workers) }
	for p.workers++; slices.ContainsFunc(others, taken); {
		p.workers++
	}
	p.Agent, p.taken = kinds.AsAgent(slotName(p.Name, p.workers)), false
	return nil
}

// slotName is what the nth worker of a program is called, from 1 on: "box-a", "box-a/2", "box-a/3" … A program has one
// more worker whenever it takes up kinds later than others. A filter by the name of the program finds all of them.
func slotName(name string, n int) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("%s/%d", name, n)
}

// due are the wanted kinds that are not worked, nor about to be, and may be tried now.
func (p *Pool) due(ctx context.Context) (names []string, err error) {
	wanted, err := p.Wanted(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, name := range wanted {
		if p.hosts[name] == nil && !p.starting[name] && !now.Before(p.absences[name].again) {
			names = append(names, name)
		}
	}
	return names, nil
}

// StartAll starts the plugins of all wanted kinds and gives their handlers.
func (p *Pool) StartAll(ctx context.Context) (map[string]worker.Handler, error) {
	names, err := p.due(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.NameAgent(ctx); err != nil {
		return nil, err
	}
	started := make(chan startedKind)
	p.startPlugins(ctx, names, started)
	var all []startedKind
	for range names {
		all = append(all, <-started)
	}
	return p.accept(ctx, all)
}

// accept makes kinds whose plugins have started ready for a worker, and notes the others.
func (p *Pool) accept(ctx context.Context, all []startedKind) (handlers map[string]worker.Handler, failed error) {
	handlers = map[string]worker.Handler{}
	slices.SortFunc(all, func(a, b startedKind) int { return strings.Compare(a.name, b.name) })
	for _, s := range all {
		if failed != nil {
			p.discard(s)
			continue
		}
		switch err := p.acceptKind(ctx, s); {
		case err != nil && (p.strict() || ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable)):
			failed = err
		case err != nil:
			p.setAbsent(s.name, failure.Explain(err))
		default:
			handlers[s.name] = s.host
			p.setPresent(s.name)
		}
	}
	return handlers, failed
}

// acceptKind makes the plugin of a kind the one that works it, if the ledger agrees.
func (p *Pool) acceptKind(ctx context.Context, s startedKind) error {
	err := s.err
	if err == nil {
		err = p.local.DefineKind(ctx, p.Ledger, p.Agent, s.kind, s.host)
	}
	if err == nil {
		err = p.local.KeepWith(s.name, s.kind.Plugin, p.With)
	}
	p.mu.Lock()
	delete(p.starting, s.name)
	if s.kind != nil {
		p.known[s.name] = s.kind
	}
	if err == nil {
		p.Agent.Kinds[s.name], p.Agent.Configs[s.name] = s.host.Definition(), s.host.Config()
		p.hosts[s.name] = s.host
	}
	p.mu.Unlock()
	if err != nil && s.host != nil {
		s.host.Close(kinds.StopGrace)
	}
	return err
}

// discard stops the plugin of a kind that is not taken up any more.
func (p *Pool) discard(s startedKind) {
	p.mu.Lock()
	delete(p.starting, s.name)
	p.mu.Unlock()
	if s.host != nil {
		s.host.Close(kinds.StopGrace)
	}
}

// setAbsent notes a kind that is not worked here. It is logged when the code of the reason changes, except
// that people work it.
func (p *Pool) setAbsent(name string, why *failure.Error) {
	reason := strings.TrimPrefix(why.Message, fmt.Sprintf("kind %q: ", name))
	before := p.absences[name]
	now := absence{reason: reason, code: why.Code, pause: min(max(2*before.pause, newKindsEvery), longestAbsence)}
	switch {
	case why.Code == kinds.NoPluginCode:
		now.reason, now.pause = "no plugin", 0
	case why.Code == kinds.OtherSettingsCode: // it ends when the other process does; not all try at the same time
		now.pause = newKindsEvery/2 + rand.N(newKindsEvery)
	case why.Code == "unknown_plugin" && p.local.Config.Kinds[name] == nil:
		now.code = kinds.NoPluginCode // the plugin that the ledger names is on other machines
	}
	if now.code != before.code && why.Code != kinds.NoPluginCode {
		p.local.Log.Warn("kind is not worked here", "kind", name, "error", reason, "code", why.Code, "again_in",
			now.pause.String())
	}
	if conflict, ok := errors.AsType[*ledger.DefinitionError](why); ok {
		now.config = conflict.Config
	}
	now.at = time.Now()
	now.again = now.at.Add(now.pause)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absences[name] = now
}

// retryAbsent has kinds that are not worked here tried at once.
func (p *Pool) retryAbsent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, a := range p.absences {
		a.again = time.Now()
		p.absences[name] = a
	}
}

// setPresent notes a kind that is worked here, and logs it if it was absent before.
func (p *Pool) setPresent(name string) {
	p.mu.Lock()
	before, was := p.absences[name]
	delete(p.absences, name)
	p.mu.Unlock()
	if was && before.code != kinds.NoPluginCode {
		p.local.Log.Info("kind is worked here again", "kind", name, "before", before.reason)
	}
}

// KindNow is what was last found out about a kind, with its plugin as it is now; nil if nothing was.
func (p *Pool) KindNow(name string) *kinds.Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.known[name]
	if known == nil {
		return nil
	}
	k := *known
	if h := p.hosts[name]; h != nil {
		k.Plugin = &kinds.Plugin{Description: h.About(), Spec: h.Spec()}
		k.Schema = k.Plugin.Payload
	}
	return &k
}

// absent are the kinds that are to be worked here and are not, for the heartbeat.
func (p *Pool) absent() map[string]worker.Absence {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]worker.Absence{}
	for name, a := range p.absences {
		if a.code != kinds.NoPluginCode {
			all[name] = worker.Absence{Again: a.again, Config: a.config, Code: a.code, At: a.at}
		}
	}
	return all
}

// notWorked is why a kind is not worked here. It is wanted here if this machine has the plugin, or a config of it.
type notWorked struct {
	Kind, Reason string
	Wanted       bool
}

// NotWorked are the kinds that are not worked here, in order.
func (p *Pool) NotWorked() (all []notWorked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.absences)) {
		a := p.absences[name]
		all = append(all, notWorked{name, a.reason, a.code != kinds.NoPluginCode})
	}
	return all
}
