package plugin

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
)

// pluginFlags are the flags that plugin run and plugin check share.
type pluginFlags struct {
	with   []string
	noMTLS bool
}

func (t *pluginFlags) define(a *app.App, f *pflag.FlagSet) {
	a.PluginDirFlag(f)
	f.StringArrayVar(&t.with, "with", nil, "`NAME=VALUE` of the plugin's config; may be repeated")
	f.BoolVar(&t.noMTLS, "no-mtls", false, "speak with it without TLS, as mtls = false in the config does: for "+
		"languages that cannot")
}

// pluginAt returns the plugin of a name, or of a path to a program, with its description. If it does not describe
// itself, the plugin is returned with the error.
func pluginAt(ctx context.Context, a *app.App, name string, t pluginFlags) (*kinds.Plugin, error) {
	p := &kinds.Plugin{}
	if strings.ContainsRune(name, filepath.Separator) {
		path, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return nil, failure.Usage("unknown_plugin", "name a program, or a plugin: ledgerd plugin ls",
				"%s: there is no such program", name)
		}
		p.Spec = a.PluginSpec(pluginhost.Place{Path: path, Origin: "path"})
	} else {
		place, err := a.Place(name)
		if kinds.IsNoPlugin(err) {
			return nil, a.NoPlugin(ctx, name)
		}
		if err != nil {
			return nil, err
		}
		p.Spec = a.PluginSpec(place)
	}
	p.Spec.NoMTLS = p.Spec.NoMTLS || t.noMTLS
	var err error
	if p.Description, err = pluginhost.Describe(ctx, p.Spec); err != nil {
		return p, kinds.PluginError(p.Spec.Place, err)
	}
	return p, nil
}
