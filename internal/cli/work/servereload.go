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
	"unicode"

	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/source"
	"github.com/ledgerd/ledgerd/ledger"
)

// hearReload reloads the config at each SIGHUP, until ctx ends.
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

const (
	reloadPause = 5 * time.Second // until the next try of a reload while the ledger is unavailable
	// maxWrong is how often such a reload is tried again because the file has mistakes: an editor may be writing it.
	maxWrong = 12
	// troublePause is the time between two log lines about one trouble with all sources.
	troublePause = 10 * time.Minute
)

// reload reads the config again and makes it the config of the daemon, or keeps the old one if the new one has
// mistakes. While the ledger is unavailable it takes over only what needs no ledger, such as the end of a token, and is
// called again after reloadPause. Only the goroutine of the pool calls it.
func (s *server) reload(ctx context.Context) {
	kept := keptOld
	waited := s.again != nil && s.wrong < maxWrong
	if s.again != nil {
		s.again.Stop()
		s.again = nil
		kept += ", but for what an earlier look has taken over: the log level, and the tokens and hidden fields of the API"
	}
	asking, cancel := context.WithTimeout(ctx, checkTime)
	inLedger, unread := s.ledger.Kinds(asking) // unread: the error, if the ledger is away
	cancel()
	next := *s.App // the old one stays if the config is wrong
	c, wrong := s.LoadConfig()
	next.Config = c
	err := checkConfig(ctx, &next, inLedger, wrong)
	if err != nil && (wrong != nil || unread == nil) { // without the ledger, kinds that only it has look like mistakes
		if waited {
			s.wrong++
			s.tryAgain("the config has mistakes", err)
			return
		}
		s.wrong = 0
		logKept(s.App, err, kept)
		return
	}
	s.wrong = 0
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
		s.tryAgain("the ledger cannot be reached", err)
		return
	case err != nil:
		s.adopt(old)
		logKept(s.App, err, keptOld)
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

// tryAgain makes hearReload call reload again after reloadPause.
func (s *server) tryAgain(why string, err error) {
	s.Log.Warn("the config is not taken over yet: "+why, "error", err, "again_in", reloadPause.String())
	s.again = time.AfterFunc(reloadPause, func() {
		select {
		case s.hup <- syscall.SIGHUP:
		default: // a SIGHUP waits there already
		}
	})
}

// adopt takes over what needs no ledger of a config: the log level, and the tokens and hidden fields of the API.
func (s *server) adopt(c *config.Config) {
	s.Config = c
	s.DaemonLogger() // takes over the level
	if s.api != nil {
		takeOver(s.api, &c.API)
		s.shown.Store(c)
	}
}

// renewSources makes the sources follow the config and the newest descriptions of plugins. It logs an error, and again
// after troublePause if it lasts: the pool calls it every few seconds. Texts that differ in digits are one error.
func (s *server) renewSources(ctx context.Context) error {
	configs, err := s.sourceConfigs(ctx)
	if err != nil {
		f := failure.Explain(err)
		text := strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, f.Message)
		if text != s.trouble || time.Since(s.troubled) >= troublePause {
			s.trouble, s.troubled = text, time.Now()
			s.Log.Error("sources go on as they were: "+f.Message, "hint", f.Hint)
		}
		return err
	}
	s.trouble = ""
	s.sources.Set(ctx, configs)
	return nil
}

// introduceAll writes the policies of the config into the ledger. A kind whose plugin has not described itself yet is
// left out: its policy is written when the kind is worked.
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

// kindNow returns the newest description of a kind, without asking its plugin; nil if its plugin is here and has not
// described itself yet.
func (s *server) kindNow(ctx context.Context, name string) (*kinds.Kind, error) {
	policy, err := s.ledger.Kind(ctx, name)
	inLedger := err == nil
	if !inLedger && !errors.Is(err, ledger.ErrNotFound) {
		return nil, err
	}
	k := s.pool.KindNow(name)
	if k == nil {
		if _, err := s.Place(cmp.Or(s.Config.PluginOf(name), policy.Plugin, name)); !kinds.IsNoPlugin(err) {
			return nil, err // nil: the plugin is here, so wait for it
		}
		return s.Resolve(ctx, s.ledger.Ledger, name, "")
	}
	k.Policy, k.Known, k.Config = policy, inLedger, s.Config.Kind(name)
	return k, nil
}

// sourceConfigs returns the sources of the config, with the input and payload of their kinds. A source whose kind is
// not known yet is left out.
func (s *server) sourceConfigs(ctx context.Context) (all []source.Config, err error) {
	host, _ := os.Hostname() // "": not known
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
		if err != nil {
			return nil, err
		}
		given := kinds.FieldsOf(payload)
		if payload, err = k.Schema.Parse(payload, nil); err != nil {
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
	if names := strings.Join(waiting, ", "); names != s.waiting {
		if s.waiting = names; names != "" {
			s.Log.Warn("sources are not looked at until the plugins of their kinds have answered", "sources", waiting)
		}
	}
	return all, nil
}
