package app

import (
	"context"
	"errors"
	"time"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
)

// World returns what the configuration is checked against: the plugins that are here, and the kinds of the ledger if it
// can be opened.
func (a *App) World(ctx context.Context) config.World { return a.WorldOf(ctx, a.KindsOfLedger(ctx)) }

// WorldOf returns the world with known as the kinds of the ledger.
func (a *App) WorldOf(ctx context.Context, known []ledger.Kind) config.World {
	w := config.World{Describe: func(name string) (*config.About, error) {
		p, err := a.FindPlugin(ctx, name)
		if kinds.IsNoPlugin(err) {
			return nil, config.ErrNoPlugin
		}
		if err != nil {
			return nil, errors.New(failure.Explain(err).Message)
		}
		return &config.About{Input: p.Policy(name).Input.Type, Payload: p.Payload, Config: p.Config}, nil
	}, Validate: func(name string, settings []byte) error { return a.validate(ctx, name, settings) }}
	if f, err := a.Finder(); err == nil {
		places, _ := f.List() // a plugin in a folder that cannot be read is reported as unknown
		for _, p := range places {
			w.Plugins = append(w.Plugins, p.Name)
		}
	}
	w.Kinds = map[string]string{}
	for _, k := range known {
		w.Kinds[k.Name] = k.Plugin
	}
	return w
}

// validate starts a plugin and lets it check its config.
func (a *App) validate(ctx context.Context, name string, with []byte) error {
	place, err := a.Place(name)
	if err != nil {
		return err
	}
	err = pluginhost.Validate(ctx, pluginhost.Config{Spec: a.PluginSpec(place), Settings: with})
	if refused, ok := errors.AsType[*pluginhost.ConfigError](err); ok {
		return kinds.SettingProblems(refused)
	} else if err != nil {
		return errors.New(failure.Explain(kinds.PluginError(place, err)).Message)
	}
	return nil
}

// KindsOfLedger returns the kinds of the ledger; none if it cannot be opened.
func (a *App) KindsOfLedger(ctx context.Context) []ledger.Kind {
	known, _ := a.ReadKinds(ctx)
	return known
}

// ReadKinds returns the kinds of the ledger, within worldTime.
func (a *App) ReadKinds(ctx context.Context) ([]ledger.Kind, error) {
	a.useLedger()
	ctx, cancel := context.WithTimeout(ctx, worldTime)
	defer cancel()
	l, err := a.Reach(ctx, ToRead)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.Kinds(ctx)
}

// worldTime is how long a check of the configuration waits for a ledger. The check can do without one.
const worldTime = 5 * time.Second
