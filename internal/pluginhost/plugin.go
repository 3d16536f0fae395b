package pluginhost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/process"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Spec is the plugin to start, and how to start it.
type Spec struct {
	Place  Place
	SHA256 string // of the program, as that of pluginproc.Spec
	Limits pluginproc.Limits
	NoMTLS bool // for plugins in languages without mutual TLS
	// Env are variables of the process besides the allow-list, as "NAME=value". Dir is its working directory; ""
	// means the host's.
	Env []string
	Dir string
	// CallTime bounds each call up to the first item; 0 means the constant CallTime.
	CallTime time.Duration
	Logger   *slog.Logger // gets what the plugin writes to stderr and stdout; nil means slog.Default()

	hide *redact.Secrets // the known secrets of its config; nil means none
}

// Same reports whether both start the same plugin in the same way. The loggers may differ.
func (s Spec) Same(as Spec) bool {
	return s.Place.Same(as.Place) && s.SHA256 == as.SHA256 && s.Limits == as.Limits && s.NoMTLS == as.NoMTLS &&
		s.CallTime == as.CallTime && s.Dir == as.Dir && slices.Equal(s.Env, as.Env)
}

// Proc converts it for package pluginproc. Lines that the plugin writes are logged without secrets.
func (s *Spec) Proc() pluginproc.Spec {
	log := cmp.Or(s.Logger, slog.Default())
	env := s.Env
	if me := process.This(); me != "" {
		env = append(slices.Clip(env), wire.HostKey+"="+me)
	}
	return pluginproc.Spec{Path: s.Place.Path, Args: s.Place.Args, SHA256: s.SHA256, Limits: s.Limits, NoMTLS: s.NoMTLS,
		Env: env, Dir: s.Dir, StartTimeout: cmp.Or(s.CallTime, CallTime),
		OnLog: func(source, line string) { log.Info(s.hide.Hide(line), "plugin", s.Place.Name, "from", source) }}
}

// Description is a plugin's description of itself.
type Description struct {
	Name         string
	Version, Doc string
	Emits        []string
	Payload      *settings.Schema
	Config       *settings.Schema
	Output       *settings.Schema
	previous     bool // the plugin wants the output of the item's last completed round
	policy       ledger.Kind
	calls        int           // calls of its function at a time
	batch        int           // items per call
	wait         time.Duration // for a batch to fill
}

// Policy is the default policy of a kind with that name, worked by this plugin. If the plugin declares no input, Input
// has no type, and the kind has to declare it.
func (d *Description) Policy(kind string) ledger.Kind {
	k := d.policy
	k.Name = kind
	if kind != d.Name {
		k.Plugin = d.Name
	}
	return k
}

// Summary is the first line of the plugin's documentation.
func (d *Description) Summary() string {
	line, _, _ := strings.Cut(strings.TrimSpace(d.Doc), "\n")
	return strings.TrimLeft(line, "# ")
}

// Describe starts the plugin, gets its description and stops it. No process is started for a plugin that is part of
// this program. If s.Place has a name, the plugin must have the same. Errors: *pluginproc.StartError, *CallError.
func Describe(ctx context.Context, s Spec) (*Description, error) {
	if s.Place.linked != nil {
		r, err := s.Place.linked()
		if err != nil {
			return nil, &CallError{Plugin: s.Place.Name, Path: s.Place.Path, Phase: PhaseDescribe, Err: err}
		}
		return s.describedBy(r, "")
	}
	a, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	defer a.proc.Kill()
	return a.describe(ctx)
}

// describedBy checks and reads the plugin's answer to Describe. kind is for the error and may be "".
func (s *Spec) describedBy(r *wire.DescribeResponse, kind string) (*Description, error) {
	d, err := newDescription(r, s.Place)
	if err != nil {
		return nil, &CallError{Plugin: cmp.Or(s.Place.Name, r.Name), Path: s.Place.Path, Kind: kind,
			Phase: PhaseDescribe, Err: describedWrongly{err}}
	}
	return d, nil
}

// newDescription reads the description of the plugin at a place. It must have the name of the place, if there is one.
func newDescription(r *wire.DescribeResponse, place Place) (_ *Description, err error) {
	if place.Name != "" && r.Name != place.Name {
		return nil, fmt.Errorf("it calls itself %q, not %q; rename the program or the plugin", r.Name, place.Name)
	}
	if err := pluginproc.CheckDescription(r); err != nil {
		return nil, err
	}
	if err := checkVersion(r.Version); err != nil {
		return nil, err
	}
	d := &Description{Name: r.Name, Version: r.Version, Doc: r.Doc, Emits: r.Emits,
		calls: max(1, int(r.Concurrency)), batch: max(1, int(r.MaxBatch)),
		wait:   time.Duration(r.MaxWaitMs) * time.Millisecond,
		policy: ledger.Kind{MaxFailures: int(r.MaxFailures), Timeout: time.Duration(r.TimeoutMs) * time.Millisecond}}
	d.previous = slices.Contains(r.Features, wire.FeaturePrevious)
	if r.OnLost == wire.OnLost_ON_LOST_DOUBT {
		d.policy.OnLost = ledger.OnLostDoubt
	}
	if r.Input != nil {
		d.policy.Input = ledger.Input{Type: r.Input.Type, Field: r.Input.Field, Match: r.Match, Modified: r.Input.Modified,
			Owner: r.Input.Owner}
	}
	for _, schema := range []struct {
		name string
		text []byte
		to   **settings.Schema
	}{{"input", r.InputSchema, &d.Payload}, {"config", r.ConfigSchema, &d.Config}, {"output", r.OutputSchema, &d.Output}} {
		if *schema.to, err = settings.Compile(schema.text); err != nil {
			return nil, fmt.Errorf("its %s schema: %w", schema.name, err)
		}
	}
	if err := d.Config.CheckSecrets(); err != nil {
		return nil, fmt.Errorf("its config schema: %w", err)
	}
	named, marked := slices.Sorted(slices.Values(r.Secrets)), slices.Sorted(slices.Values(d.Config.Secrets()))
	if !slices.Equal(named, marked) {
		return nil, fmt.Errorf("it names %q as its secrets, and the writeOnly fields of its config are %q", named, marked)
	}
	return d, nil
}

// longestVersion is in bytes. Name, version and digest together must fit into bounds.MaxWorker, or the ledger refuses
// results and heartbeats.
const longestVersion = 100

func checkVersion(version string) error {
	if len(version) > longestVersion || strings.ContainsFunc(version, func(r rune) bool {
		return !unicode.IsGraphic(r) || r == utf8.RuneError
	}) {
		return fmt.Errorf("its version is not text of at most %d bytes: %q", longestVersion,
			version[:min(len(version), longestVersion)])
	}
	return nil
}

// definition names the plugin and its config: "urlcheck@0.1.0+3fa9c1". The digest covers the settings that differ from
// their default, without secrets and without those that only tune. So a version with one more setting has the same
// digest until the setting is used.
func (d *Description) definition(config []byte) (string, error) {
	config, err := d.Config.Agreed(config)
	if err != nil {
		return "", err
	}
	defaults, err := d.Config.Fill([]byte("{}"))
	if err != nil {
		return "", err
	}
	var given, usual any
	if err := errors.Join(json.Unmarshal(config, &given), json.Unmarshal(defaults, &usual)); err != nil {
		return "", err
	}
	own, err := json.Marshal(changed(given, usual)) // sorted by name
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(own)
	return fmt.Sprintf("%s@%s+%s", d.Name, d.Version, hex.EncodeToString(sum[:3])), nil
}

// changed returns the fields of the object given that differ from those of usual, for nested objects as well. If one of
// the two is no object, it returns given.
func changed(given, usual any) any {
	a, isObject := given.(map[string]any)
	b, areBoth := usual.(map[string]any)
	if !isObject || !areBoth {
		return given
	}
	own := map[string]any{}
	for name, value := range a {
		if before, has := b[name]; has && reflect.DeepEqual(value, before) {
			continue
		}
		if inner := changed(value, b[name]); !reflect.DeepEqual(inner, map[string]any{}) { // {} is no setting
			own[name] = inner
		}
	}
	return own
}

// ConfigError is the plugin's refusal of its config, with the settings at fault.
type ConfigError struct {
	Plugin   string
	Problems []*wire.Problem
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("plugin %s refuses its config: %s", e.Plugin, wire.ProblemText(e.Problems))
}

// setup is a plugin with its config.
type setup struct {
	about      *Description
	request    *wire.ConfigureRequest
	definition string
	worker     string        // the name for attempts, see workerName
	config     string        // the settings in force, for people, without secrets
	places     int           // most items in the process at a time
	wait       time.Duration // most time for a batch to fill
	hide       *redact.Secrets
	emits      []string // kinds that results may emit
}

// workerName is the name that attempts keep of the plugin that worked them: its definition, and the beginning of the
// program's checksum if that is checked before every start. sha256 is "" if it is not.
func workerName(definition, sha256 string) string {
	const shown = 12 // digits
	if sha256 == "" || strings.Contains(sha256, pluginproc.SumOr) {
		return definition
	}
	return definition + " sha256:" + strings.ToLower(sha256[:shown])
}

// configure fills in the defaults of a config, validates it and splits off its secrets.
func (d *Description) configure(c *Config) (*setup, error) {
	config := c.Settings
	if len(config) == 0 {
		config = []byte("{}")
	}
	full, err := d.Config.Fill(config)
	if err != nil {
		return nil, err
	}
	if err := d.Config.Validate(full); err != nil {
		return nil, err
	}
	rest, secrets, err := d.Config.Split(full)
	if err != nil {
		return nil, err
	}
	definition, err := d.definition(rest)
	if err != nil {
		return nil, err
	}
	shown, err := d.inForce(config)
	if err != nil {
		return nil, err
	}
	c.hide.Add(slices.Collect(maps.Values(secrets))...)
	return &setup{
		about: d, definition: definition, worker: workerName(definition, c.SHA256), config: shown, hide: c.hide,
		request: &wire.ConfigureRequest{Config: rest, Secrets: secrets, Concurrency: int32(c.Concurrency)},
		places:  cmp.Or(c.Concurrency, d.calls) * d.batch, wait: d.wait,
	}, nil
}

// launch starts a process and opens it with its config. After an error the process is gone.
func launch(ctx context.Context, c *Config) (*pluginproc.Proc, *setup, error) {
	a, s, err := ask(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if err := a.open(ctx, s); err != nil {
		a.proc.Kill()
		return nil, nil, c.hide.Error(err)
	}
	return a.proc, s, nil
}

// ask starts a process and has it validate its config. After an error the process is gone.
func ask(ctx context.Context, c *Config) (*asker, *setup, error) {
	c.hide = cmp.Or(c.hide, redact.New())
	a, err := c.start(ctx)
	if err != nil {
		return nil, nil, c.hide.Error(err) // it may have been configured before
	}
	a.kind = c.Kind
	var s *setup
	d, err := a.describe(ctx)
	if err == nil {
		s, err = d.configure(c)
	}
	if err == nil {
		err = a.validate(ctx, s)
	}
	if err != nil {
		a.proc.Kill()
		return nil, nil, c.hide.Error(err)
	}
	return a, s, nil
}

// Validate starts the plugin, has it validate the config without opening it, and stops it. Errors are those of Start.
func Validate(ctx context.Context, c Config) error {
	a, _, err := ask(ctx, &c)
	if err != nil {
		return err
	}
	a.proc.Kill()
	return nil
}

// Check starts the plugin with its config as Start does, asks it whether its dependencies are available, and stops it.
// The problem is the plugin's answer, "" if there is none. Errors are those of Start, and *CallError or the cause of
// ctx if the plugin did not answer.
func Check(ctx context.Context, c Config) (problem string, err error) {
	a, s, err := ask(ctx, &c)
	if err != nil {
		return "", err
	}
	if err = a.open(ctx, s); err == nil {
		problem, err = a.check(ctx)
	}
	if err != nil {
		a.proc.Kill()
		return "", c.hide.Error(err)
	}
	a.proc.Stop(ctx, checkGrace)
	return c.hide.Hide(problem), nil
}

// checkGrace is how long the process may take to end after Check.
const checkGrace = time.Second
