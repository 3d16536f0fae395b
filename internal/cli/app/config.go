package app

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

const (
	// configAnnotation marks flags that have a key of the same name in the config file.
	configAnnotation = "config"
	// WithoutConfig marks commands that do not load the config, so that they also work with one that has mistakes.
	WithoutConfig = "without config"
)

// FromConfig lets LEDGERD_NAME and the key of that name set a flag that is not on the command line.
func FromConfig(f *pflag.FlagSet, name string) {
	FromEnv(f, name)
	f.Lookup(name).Annotations[configAnnotation] = []string{strings.ReplaceAll(name, "-", "_")}
}

// SettleEnvironment records whether --db and --config were typed, gives other flags the values of the environment, and
// makes the log.
func (a *App) SettleEnvironment(flags *pflag.FlagSet) error {
	if flags.Changed("db") {
		a.DbSource = DbFlag
	}
	a.ConfigTyped = flags.Changed("config")
	if err := fromEnvironment(flags, os.LookupEnv); err != nil {
		return err
	}
	a.Log, a.Notices = a.commandLogger(), a.Stderr
	if a.Quiet {
		a.Notices = io.Discard
	}
	return nil
}

// Configure loads the config and gives its values to the flags that are not on the command line.
func (a *App) Configure(flags *pflag.FlagSet) error {
	if a.DbSource == DbFlag { // the config would report a mistake in --db in other words
		if err := badDB(dburl.Check(a.Db, a.DbSource)); err != nil {
			return err
		}
	}
	c, err := a.LoadConfig()
	if err != nil {
		return err
	}
	a.UseConfig(c, flags)
	a.useLedger()
	flags.VisitAll(func(f *pflag.Flag) {
		key := f.Annotations[configAnnotation]
		if len(key) == 0 || f.Changed || f.Name == "db" || f.Name == "concurrency" || f.Name == "plugin-dir" || err != nil {
			return
		}
		if text := a.Config.Text(key[0]); text != "" {
			err = f.Value.Set(text)
		}
	})
	return err
}

// UseConfig makes c the config of this run. Its plugin_dir is not used if --plugin-dir was typed.
func (a *App) UseConfig(c *config.Config, flags *pflag.FlagSet) {
	a.Config = c
	if !flags.Changed("plugin-dir") {
		a.Dirs = c.PluginDir
	}
}

// useLedger takes the address of the ledger from the config, unless it was typed.
func (a *App) useLedger() {
	if a.DbSource == DbFlag || a.Config.DB == "" {
		return
	}
	a.Db, a.DbSource = a.Config.DB, a.Config.Origin("db").String()
	if a.Config.DBFile != "" {
		a.DbSource = a.Config.Origin("db_file").String()
	}
}

// LoadConfig reads the config from its file, the environment and --db. When a daemon reads it again, it reads the file
// that was found the first time.
func (a *App) LoadConfig() (*config.Config, error) {
	o := config.Options{Path: a.Config.File, Environ: os.Environ()}
	if o.Path == "" {
		o.Path = config.Find(a.ConfigFile, os.LookupEnv)
	}
	if a.DbSource == DbFlag {
		o.Flags = map[string]string{"db": a.Db}
	}
	return config.Load(o)
}

// PluginDirFlag defines --plugin-dir.
func (a *App) PluginDirFlag(f *pflag.FlagSet) {
	f.StringSliceVar(&a.Dirs, "plugin-dir", nil, "`folder` with plugins, looked at before the others; may be repeated")
	FromConfig(f, "plugin-dir")
}

// RememberWith makes commands of this process keep --with for the next command, for each ledger and kind.
func (a *App) RememberWith() error {
	dir, err := a.DataDir()
	if err != nil {
		return err
	}
	name := redact.Text(a.Db)
	if !dburl.IsRemote(a.Db) {
		at, err := a.Address()
		if err != nil {
			return err
		}
		name = at.String()
	}
	a.Memory = &kinds.Memory{Dir: filepath.Join(dir, "settings"), Ledger: name}
	return nil
}
