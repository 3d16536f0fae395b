package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

type pluginDirs struct{ dirs []string }

func (d *pluginDirs) define(f *pflag.FlagSet) {
	f.StringArrayVar(&d.dirs, "plugin-dir", nil, "folder with plugins, looked at first; repeated")
	fromEnv(f, "plugin-dir")
}

type plugin struct {
	name                    string
	payload, config, output *settings.Schema
}

func (p *plugin) input() ledger.Input            { return ledger.Input{} }
func (p *plugin) policy(name string) ledger.Kind { return ledger.Kind{Name: name} }

type host interface {
	worker.Handler
	Definition() string
	Close() error
}

var errNoPlugin = errors.New("no such plugin")

func servePlugin() {}
func (a *app) describe(ctx context.Context, name string, dirs pluginDirs) (*plugin, error) {
	return nil, errNoPlugin
}
func (a *app) noPlugin(ctx context.Context, l *ledger.Ledger, name string, dirs pluginDirs) error {
	return errNoPlugin
}
func (a *app) unknownKind(ctx context.Context, l *ledger.Ledger, name string, dirs pluginDirs) error {
	return errNoPlugin
}
func (a *app) startPlugin(ctx context.Context, k *kind, with []string, j int) (host, error) {
	return nil, errNoPlugin
}
func cutDefinition(d string) (name, version, digest string)         { return d, "", "" }
func (a *app) listKinds(ctx context.Context, dirs pluginDirs) error { return nil }
func (a *app) helpWithFields(cmd *cobra.Command, s *sourceFlags)    {}
func (a *app) pluginCommand() *cobra.Command                        { return group(groupSetUp, "plugin", "x") }
