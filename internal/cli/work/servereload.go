package work

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/source"
	"github.com/ledgerd/ledgerd/ledger"
)

// hearReload reads the config anew whenever SIGHUP comes, until ctx ends.
func (s *server) hearReload(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hup:
		}
		s.pool.Do(ctx, func() { s.reload(s.life) })
	}
}

// reloadPause is how long a reload waits for a ledger that is away.
const reloadPause = 5 * time.Second

// reload takes over the config as it is now, or keeps the old one if it is wrong. The pool calls it. While the ledger
// is away it takes over what needs none, such as the end of a token, and tries the rest again.
func (s *server) reload(ctx context.Context) {
	if s.again != nil {
		s.again.Stop()
	}
	asking, cancel := context.WithTimeout(ctx, checkTime)
	known, unread := s.ledger.Kinds(asking)
	cancel()
	next := new(app.App) // the old one stays if the config is wrong
	*next = *s.App
	c, wrong := s.LoadConfig()
	next.Config = c
	err := checkConfig(ctx, next, known, wrong)
	if err != nil && (wrong != nil || unread == nil) { // without the ledger, kinds that only it knows look like mistakes
		logKept(s.App, err)
		return
	}
	old := s.Config
	changes := config.Diff(old, c)
	c.Retain(old)
	s.adopt(c)
	err = unread
	var configs []source.Config
	if err == nil {
		configs, err = s.sourceConfigs(ctx)
	}
	if err == nil {
		err = s.introduceAll(ctx)
	}
	switch {
	case unread != nil || errors.Is(err, ledger.ErrUnavailable):
		s.Config = old
		s.Log.Warn("the config is not taken over yet: the ledger cannot be reached", "error", err, "again_in",
			reloadPause.String())
		s.again = time.AfterFunc(reloadPause, func() {
			select {
			case s.hup <- syscall.SIGHUP:
			default: // it comes anyway
			}
		})
		return
	case err != nil:
		s.adopt(old)
		logKept(s.App, err)
		return
	}
	s.pool.Reread()
	logWarnings(s.App)
	s.sources.Set(ctx, configs)
	for _, change := range changes {
		s.Log.Info("config changed", "key", change.Key, "needs_restart", !change.Live)
	}
	s.Log.Info("the config was read anew", "config", c.File, "changes", len(changes))
}

// adopt makes c the config, as far as that needs no ledger.
func (s *server) adopt(c *config.Config) {
	s.Config = c
	s.DaemonLogger() // takes over the level
	if s.api != nil {
		takeOver(s.api, &c.API)
		s.shown.Store(c)
	}
}

// renewSources has the sources take inputs as the plugins take them by now. It logs each error once.
func (s *server) renewSources(ctx context.Context) error {
	configs, err := s.sourceConfigs(ctx)
	if err != nil {
		if f := failure.Explain(err); f.Message != s.trouble {
			s.trouble = f.Message
			s.Log.Error("sources go on as they were: "+f.Message, "hint", f.Hint)
		}
		return err
	}
	s.trouble = ""
	s.sources.Set(ctx, configs)
	return nil
}

// introduceAll writes down what the config has now of the policies of kinds; those whose plugins are not known
// yet are written when they are taken up.
func (s *server) introduceAll(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(s.Config.Kinds)) {
		k, err := s.kindNow(ctx, name)
		if err == nil && k != nil {
			err = s.Introduce(ctx, s.ledger.Ledger, k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kindNow is what is known of a kind by now, without asking its plugin: nil if that has not described itself yet.
func (s *server) kindNow(ctx context.Context, name string) (*kinds.Kind, error) {
	policy, err := s.ledger.Kind(ctx, name)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return nil, err
	}
	k := s.pool.KindNow(name)
	if k == nil {
		if _, err := s.Place(cmp.Or(s.Config.PluginOf(name), policy.Plugin, name)); !kinds.IsNoPlugin(err) {
			return nil, err
		}
		return s.Resolve(ctx, s.ledger.Ledger, name, "")
	}
	k.Policy, k.Known, k.Config = policy, err == nil, s.Config.Kind(name)
	return k, nil
}

// sourceConfigs are the sources of the config, with what their kinds declare. One whose kind is not known yet is
// not looked at.
func (s *server) sourceConfigs(ctx context.Context) (all []source.Config, err error) {
	host, _ := os.Hostname() // as agents give it
	var waiting []string
	for _, spec := range s.Config.Sources {
		k, err := s.kindNow(ctx, spec.Kind)
		if err != nil {
			return nil, err
		}
		if k == nil {
			waiting = append(waiting, spec.Name)
			continue
		}
		if err := s.Introduce(ctx, s.ledger.Ledger, k); err != nil {
			return nil, err
		}
		payload, err := s.Config.SourcePayload(spec, k.Schema)
		given := kinds.FieldsOf(payload)
		if err == nil {
			payload, err = k.Schema.Parse(payload, nil)
		}
		if err != nil {
			return nil, err
		}
		fields := map[string]string{}
		for _, f := range k.Schema.Fields() {
			fields[f.Name] = f.Type
		}
		all = append(all, source.Config{Ledger: s.ledger.Ledger, Spec: spec, Input: k.Input(), Payload: payload, Given: given,
			Fields: fields,
			Template: ledger.NewItem{Kind: spec.Kind, Scope: spec.Scope, Priority: int16(k.Config.Priority),
				Every: k.Config.Every, Zone: k.Config.Zone},
			Parse: k.Schema.Parse, Validate: k.Schema.Validate, Rules: k.Schema.String(),
			Query: input.QuerySource(s.App, spec), Host: host, Agent: s.name, TTL: s.flags.work.lease.Duration, Log: s.Log,
			Observe: s.metrics.Look, TracerProvider: s.TracerProvider(ctx)})
	}
	if now := strings.Join(waiting, ", "); now != s.waiting {
		if s.waiting = now; now != "" {
			s.Log.Warn("sources are not looked at until the plugins of their kinds have answered", "sources", waiting)
		}
	}
	return all, nil
}
