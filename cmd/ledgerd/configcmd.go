package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

func (a *app) configCommand() *cobra.Command {
	return group(groupSetUp, "config", "Check, show or begin the config file", a.configCheckCommand(), a.configPrintCommand(), a.configInitCommand())
}

// problemRow is a mistake in the configuration, or a warning.
type problemRow struct {
	Severity string `json:"severity"` // "error" or "warning"
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Variable string `json:"variable"`
	Key      string `json:"key"`
	Message  string `json:"message"`
	Hint     string `json:"hint"`
}

// checkResult is what config check prints with -o json.
type checkResult struct {
	OK       bool         `json:"ok"`
	File     string       `json:"file"`
	Problems []problemRow `json:"problems"`
}

func (a *app) configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Check the config file, the environment and what plugins say of it; exit 2 if something is wrong", Args: arguments(0, 0),
		Annotations: map[string]string{withoutConfig: "yes"},
		Long: `Reports every mistake at once, with its place and what may have been meant: what is no TOML,
unknown keys, wrong values, plugins and kinds that there are not, and settings that a plugin does
not take; each plugin that the file names is started and asked. Warns of policies that the ledger has
otherwise. Changes nothing. If all is well it says when each source is looked at next.

With -o json: {"ok","file","problems":[{"severity":"error|warning","file","line","column",
"variable","key","message","hint"}]}; with -o jsonl and csv a row for each problem.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.configCheck(cmd.Context())
		},
	}
}

func (a *app) configCheck(ctx context.Context) error {
	c, err := a.loadConfig()
	a.config = c
	kinds := a.kindsOfLedger(ctx)
	err = c.Check(a.worldOf(ctx, kinds), err)
	c.Warnings = append(c.Warnings, c.PolicyWarnings(kinds)...)
	bad, ok := errors.AsType[*config.Error](err)
	if err != nil && !ok {
		return err
	}
	result := checkResult{OK: err == nil, File: c.File, Problems: []problemRow{}}
	if bad != nil {
		result.Problems = append(result.Problems, problemRows("error", bad.Problems)...)
	}
	result.Problems = append(result.Problems, problemRows("warning", c.Warnings)...)
	switch p := a.printer(); p.Format {
	case report.JSON:
		err = p.Object(result)
	case report.Table:
		err = a.sayProblems(c, bad)
	default:
		_, err = report.List(p, each(result.Problems), "severity", "file", "line", "message", "hint")
	}
	if err == nil && !result.OK {
		err = status(exitUsage)
	}
	return err
}

func problemRows(severity string, problems []config.Problem) (rows []problemRow) {
	for _, p := range problems {
		rows = append(rows, problemRow{severity, p.File, p.Line, p.Column, cmp.Or(p.Env, p.Flag), p.Key, p.Message, p.Hint})
	}
	return rows
}

// sayProblems prints what is wrong as people read it.
func (a *app) sayProblems(c *config.Config, bad *config.Error) error {
	var b strings.Builder
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	switch {
	case bad != nil:
		fmt.Fprintf(&b, "%s\n%s    exit %d\n", bad, plural(int64(len(bad.Problems)), "problem"), exitUsage)
	case c.File == "":
		fmt.Fprintf(&b, "no config file, and none is needed; one is made by: ledgerd config init\n")
	default:
		fmt.Fprintf(&b, "%s: ok   %s, %s, %s\n", c.File, plural(int64(len(c.Kinds)), "kind"), plural(int64(len(c.Sources)), "source"), plural(int64(len(c.Plugins)), "plugin"))
	}
	if bad == nil {
		for _, s := range c.Sources {
			var next []string
			at := time.Now()
			for range 3 {
				at = s.Next(at)
				next = append(next, a.printer().Local(at))
			}
			fmt.Fprintf(&b, "source %s: next %s …\n", s.Name, strings.Join(next, ", "))
		}
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(a.stdout, report.Safe(strings.TrimSuffix(line, "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// world is what the configuration is checked against: the plugins that are here, and the kinds of
// the ledger, if there is one that can be opened.
func (a *app) world(ctx context.Context) config.World { return a.worldOf(ctx, a.kindsOfLedger(ctx)) }

func (a *app) worldOf(ctx context.Context, kinds []ledger.Kind) config.World {
	w := config.World{Describe: func(name string) (*config.About, error) {
		p, err := a.findPlugin(ctx, name, pluginDirs{a.config.PluginDir})
		if isNoPlugin(err) {
			return nil, config.ErrNoPlugin
		}
		if err != nil {
			return nil, errors.New(explain(err).message)
		}
		return &config.About{Input: p.Policy(name).Input.Type, Payload: p.Payload, Config: p.Config}, nil
	}, Validate: func(name string, settings []byte) error { return a.validate(ctx, name, settings) }}
	if f, err := a.finder(pluginDirs{a.config.PluginDir}); err == nil {
		places, _ := f.List() // what is not found is reported as unknown
		for _, p := range places {
			w.Plugins = append(w.Plugins, p.Name)
		}
	}
	w.Kinds = map[string]string{}
	for _, k := range kinds {
		w.Kinds[k.Name] = k.Plugin
	}
	return w
}

// validate has a plugin look at its config.
func (a *app) validate(ctx context.Context, name string, with []byte) error {
	place, err := a.place(name, pluginDirs{a.config.PluginDir})
	if err != nil {
		return err
	}
	err = pluginhost.Validate(ctx, pluginhost.Config{Spec: a.pluginSpec(place), Settings: with})
	if refused, ok := errors.AsType[*pluginhost.ConfigError](err); ok {
		return settingProblems(refused)
	}
	return err
}

// settingProblems is what a plugin says against its config, as its schema would say it.
func settingProblems(refused *pluginhost.ConfigError) *settings.Error {
	bad := &settings.Error{}
	for _, p := range refused.Problems {
		bad.Problems = append(bad.Problems, settings.Problem{Field: p.Field, Message: p.Message})
	}
	return bad
}

// kindsOfLedger are the kinds that the ledger knows; none if it cannot be opened.
func (a *app) kindsOfLedger(ctx context.Context) []ledger.Kind {
	a.useLedger()
	at, err := a.address()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, worldTime)
	defer cancel()
	l, err := a.openAt(ctx, at, false)
	if err != nil {
		return nil
	}
	defer l.Close()
	kinds, _ := l.Kinds(ctx) // as far as it is known
	return kinds
}

// worldTime is how long a check of the configuration waits for a ledger, which it can do without.
const worldTime = 5 * time.Second

// settingRow is the effective value of a key.
type settingRow struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

func (a *app) configPrintCommand() *cobra.Command {
	return &cobra.Command{
		Use: "print", Short: "Print what is effective, and where each value is from", Args: arguments(0, 0),
		Annotations: map[string]string{withoutConfig: "yes"},
		Long: `Lists the effective settings: all at the top, and what is set of kinds, sources and plugins. The
origin is default, FILE:LINE, the name of a variable, or a flag. Secrets are not shown.
Fields: key, value, origin.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.configPrint(cmd.Context())
		},
	}
}

func (a *app) configPrint(ctx context.Context) error {
	c, err := a.loadConfig()
	if err != nil {
		return err
	}
	a.config = c
	var rows []settingRow
	for _, s := range c.Settings(a.world(ctx)) {
		row := settingRow{s.Key, s.Value, s.Origin.String()}
		if row.Value == "" && (s.Key == "db" || s.Key == "data_dir") {
			if row.Value, err = a.effective(s.Key); err != nil {
				return err
			}
		}
		rows = append(rows, row)
	}
	_, err = report.List(a.printer(), each(rows), "key", "value", "origin")
	return err
}

// effective is where the ledger and the data are if nothing says it.
func (a *app) effective(key string) (string, error) {
	if key == "data_dir" {
		return a.dataDir()
	}
	at, err := a.address()
	return at.String(), err
}

func (a *app) configInitCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Write a commented config file to begin with", Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !strings.HasPrefix(args[0], "-") {
				return usage("usage", "ledgerd config init --config "+args[0], "%s: the file is named by a flag", cmd.CommandPath())
			}
			return arguments(0, 0)(cmd, args)
		},
		Annotations: map[string]string{withoutConfig: "yes"},
		Long: `Writes the file that --config names, else the one of the user, $XDG_CONFIG_HOME/ledgerd/ledgerd.toml.
What it says is the default, or commented out. A file that is there is left alone.

With -o json: {"file"}.`,
		Example: "  ledgerd config init\n  ledgerd config init --config /etc/ledgerd/ledgerd.toml",
		RunE: func(*cobra.Command, []string) error {
			return a.configInit()
		},
	}
}

func (a *app) configInit() error {
	path := cmp.Or(a.configFile, config.UserFile(os.LookupEnv))
	if path == "" {
		return usage("no_home", "say where: --config FILE", "there is no home directory for the config file")
	}
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = writeNew(path, config.Example)
	}
	if errors.Is(err, fs.ErrExist) {
		return usage("exists", "look at it: ledgerd config print    another place: --config FILE", "%s is there already and was left alone", path)
	}
	if err != nil {
		return err
	}
	return one(a, struct {
		File string `json:"file"`
	}{path}, path)
}

// writeNew writes a file that must not exist, for its owner alone: it may come to hold a secret.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
