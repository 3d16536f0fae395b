package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
)

const (
	// configAnnotation marks flags that have a key of the same name in the config file.
	configAnnotation = "config"
	// withoutConfig marks commands that work without it, or also with one that is wrong.
	withoutConfig = "without config"
)

// fromConfig lets LEDGERD_NAME and the key of that name set a flag that is not on the command line.
func fromConfig(f *pflag.FlagSet, name string) {
	fromEnv(f, name)
	f.Lookup(name).Annotations[configAnnotation] = []string{strings.ReplaceAll(name, "-", "_")}
}

// settleEnvironment takes note of where the address of the ledger is from, and gives the flags that are not
// on the command line what the environment says.
func (a *app) settleEnvironment(flags *pflag.FlagSet) error {
	if flags.Changed("db") {
		a.dbSource = dbFlag
	}
	return fromEnvironment(flags, os.LookupEnv)
}

// configure loads the config and gives the flags that are not on the command line what it says.
func (a *app) configure(flags *pflag.FlagSet) error {
	if a.dbSource == dbFlag { // its own words for what is wrong with it
		if _, err := parseAddress(a.db, a.dbSource); err != nil {
			return err
		}
	}
	var err error
	if a.config, err = a.loadConfig(); err != nil {
		return err
	}
	a.useLedger()
	flags.VisitAll(func(f *pflag.Flag) {
		key := f.Annotations[configAnnotation]
		if len(key) == 0 || f.Changed || f.Name == "db" || f.Name == "concurrency" || err != nil {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			err = list.Replace(a.config.PluginDir)
		} else if text := a.config.Text(key[0]); text != "" {
			err = f.Value.Set(text)
		}
	})
	return err
}

// useLedger takes the address of the ledger from the config, unless it was typed.
func (a *app) useLedger() {
	if a.dbSource == dbFlag || a.config.DB == "" {
		return
	}
	a.db, a.dbSource = a.config.DB, a.config.Origin("db").String()
	if a.config.DBFile != "" {
		a.dbSource = a.config.Origin("db_file").String()
	}
}

// loadConfig reads the file, the environment and the flags that are keys.
func (a *app) loadConfig() (*config.Config, error) {
	o := config.Options{Path: config.Find(a.configFile, os.LookupEnv), Environ: os.Environ()}
	if a.dbSource == dbFlag {
		o.Flags = map[string]string{"db": a.db}
	}
	return config.Load(o)
}

// concurrency is how many items of a kind are worked at a time: what was typed, else what the config
// says of the kind, else of all; 0 is as the plugin says.
func (a *app) concurrency(kind string, typed int) int {
	return cmp.Or(typed, a.config.Kind(kind).Concurrency, a.config.Concurrency)
}

// pluginSpec is how the plugin at a place is started, by the config.
func (a *app) pluginSpec(place pluginhost.Place) pluginhost.Spec {
	s := pluginhost.Spec{Place: place, SHA256: place.SHA256, Logger: a.logger()}
	p := a.config.Plugins[place.Name]
	if p == nil {
		return s
	}
	s.Limits = pluginproc.Limits{Memory: int64(p.Memory), CPU: p.CPU, OpenFiles: p.OpenFiles, Processes: p.Processes}
	s.SHA256, s.NoMTLS, s.Dir, s.CallTime = cmp.Or(p.SHA256, s.SHA256), !p.MTLS, p.Dir, p.AnswerTime
	for _, name := range p.Env {
		if value, ok := os.LookupEnv(name); ok {
			s.Env = append(s.Env, name+"="+value)
		}
	}
	return s
}

// program is the path of a command, which PATH may have.
func program(name string) string {
	if !strings.ContainsRune(name, filepath.Separator) {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return name
}
