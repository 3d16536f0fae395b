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
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// absence is the reason why a kind is not worked here.
type absence struct {
	reason string
	code   string // of the reason, for programs
	pause  time.Duration
	at     time.Time // when it was found
	again  time.Time // of the next try; at once if nothing here can work it
	config string    // this program's settings of the kind, if another process works it with different ones
}

// longestAbsence is the longest time between two tries to take a kind.
const longestAbsence = time.Minute

// startedKind is the result of starting the plugin of a kind.
type startedKind struct {
	name string
	kind *kinds.Kind // nil if the kind could not be resolved
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
	local := *p.local // a config that is read meanwhile counts at the next try
	for _, name := range names {
		go func() {
			s := startedKind{name: name}
			s.kind, s.host, s.err = p.startKind(ctx, &local, name)
			to <- s
		}()
	}
}

// startKind starts the plugin of a kind.
func (p *Pool) startKind(ctx context.Context, lc *kinds.Local, name string) (*kinds.Kind, *pluginhost.Host, error) {
	k, err := lc.Resolve(ctx, p.Ledger, name, "")
	if err == nil && k.Plugin == nil {
		err = lc.NoPluginFor(ctx, k, "plugins: ledgerd plugin ls")
	}
	if err != nil {
		return k, nil, err
	}
	k.Plugin.Spec.Logger = k.Plugin.Spec.Logger.With("kind", name, "agent", p.Agent)
	h, err := lc.StartPlugin(ctx, k, p.With, pluginhost.Config{Concurrency: p.Concurrency, Progress: p.latest.Set,
		LastOutput: p.Ledger.LastOutput})
	return k, h, err
}

// due returns the wanted kinds that are neither worked nor being started, and may be tried now.
func (p *Pool) due(wanted []string) (names []string) {
	now := time.Now()
	for _, name := range wanted {
		if p.hosts[name] == nil && !p.starting[name] && !now.Before(p.absences[name].again) {
			names = append(names, name)
		}
	}
	return names
}

// StartAll starts the plugins of all wanted kinds. The worker then takes the kinds that it can work.
func (p *Pool) StartAll(ctx context.Context) error {
	wanted, err := p.Wanted(ctx)
	if err != nil {
		return err
	}
	names, started := p.due(wanted), make(chan startedKind)
	p.startPlugins(ctx, names, started)
	var all []startedKind
	for range names {
		all = append(all, <-started)
	}
	slices.SortFunc(all, func(a, b startedKind) int { return strings.Compare(a.name, b.name) })
	for _, s := range all {
		if err != nil {
			p.discard(s)
		} else {
			err = p.accept(ctx, s, len(p.Kinds) > 0)
		}
	}
	return err
}

// accept makes the worker take a kind whose plugin has started, or notes why it is not worked. With must, it returns
// that reason as an error.
func (p *Pool) accept(ctx context.Context, s startedKind, must bool) error {
	switch err := p.take(ctx, s); {
	case err == nil:
		p.setPresent(s)
	case must || ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable):
		return err
	case !errors.Is(err, worker.ErrEnded):
		p.setAbsent(s.name, failure.Explain(err))
	}
	return nil
}

// take makes the worker take a kind whose plugin has started, if the ledger permits its settings.
func (p *Pool) take(ctx context.Context, s startedKind) error {
	err := s.err
	if err == nil {
		c := worker.KindConfig{Concurrency: p.local.Concurrency(s.name, p.Concurrency)}
		err = p.worker.Take(ctx, s.name, s.host, c, func(me ledger.Agent) error {
			s.kind.Config = p.local.Config.Kind(s.name) // it may have been read again while the plugin started
			if err := p.local.DefineKind(ctx, p.Ledger, me, s.kind, s.host); err != nil {
				return err
			}
			return p.local.KeepWith(s.name, s.kind.Plugin, p.With)
		})
	}
	p.mu.Lock()
	delete(p.starting, s.name)
	if s.kind != nil {
		p.known[s.name] = s.kind
	}
	if err == nil {
		p.hosts[s.name] = s.host
	}
	p.mu.Unlock()
	if err != nil && s.host != nil {
		s.host.Close(kinds.StopGrace)
	}
	return err
}

// discard stops the plugin of a kind that will not be taken.
func (p *Pool) discard(s startedKind) {
	p.mu.Lock()
	delete(p.starting, s.name)
	p.mu.Unlock()
	if s.host != nil {
		s.host.Close(kinds.StopGrace)
	}
}

// setAbsent notes that a kind is not worked here, and why. It logs when the code of the reason changes, unless people
// work the kind.
func (p *Pool) setAbsent(name string, why *failure.Error) {
	reason := strings.TrimPrefix(why.Message, fmt.Sprintf("kind %q: ", name))
	before := p.absences[name]
	now := absence{reason: reason, code: why.Code, pause: min(max(2*before.pause, newKindsEvery), longestAbsence)}
	switch {
	case why.Code == health.NoPlugin:
		now.reason, now.pause = "no plugin", 0
	case why.Code == kinds.OtherSettingsCode: // it ends when the other process ends; tries are spread
		now.pause = newKindsEvery/2 + rand.N(newKindsEvery)
	case why.Code == "unknown_plugin" && p.local.Config.Kinds[name] == nil:
		now.code = health.NoPlugin // only other machines have the plugin that the ledger names
	}
	if now.code != before.code && why.Code != health.NoPlugin {
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

// setPresent notes that a kind is worked here. It logs that if the kind was absent before, or its plugin was another
// one.
func (p *Pool) setPresent(s startedKind) {
	p.mu.Lock()
	absent, was := p.absences[s.name]
	before := p.replaced[s.name]
	delete(p.absences, s.name)
	delete(p.replaced, s.name)
	p.mu.Unlock()
	if was && absent.code != health.NoPlugin {
		p.local.Log.Info("kind is worked here again", "kind", s.name, "before", absent.reason)
	}
	if before != "" {
		p.local.Log.Info("the plugin was replaced", "kind", s.name, "before", before, "now", s.host.Definition(), "path",
			s.host.Spec().Place.Path, "sha256", s.host.Spec().SHA256)
	}
}

// KindNow returns the newest description of a kind, with the present state of its plugin; nil if there is none.
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

// absent returns the kinds that should be worked here but are not, for the heartbeat.
func (p *Pool) absent() map[string]worker.Absence {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]worker.Absence{}
	for name, a := range p.absences {
		if a.code != health.NoPlugin {
			all[name] = worker.Absence{Again: a.again, Config: a.config, Code: a.code, Error: a.reason, At: a.at}
		}
	}
	return all
}

// notWorked is the reason why a kind is not worked here. The kind is wanted if this machine has its plugin or a config
// for it.
type notWorked struct {
	Kind, Reason string
	Wanted       bool
}

// NotWorked returns the kinds that are not worked here, in order.
func (p *Pool) NotWorked() (all []notWorked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.absences)) {
		a := p.absences[name]
		all = append(all, notWorked{name, a.reason, a.code != health.NoPlugin})
	}
	return all
}
