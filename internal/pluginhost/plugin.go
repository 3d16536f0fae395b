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

// Spec reports which plugin to start, and how.
type Spec struct {
	Place  Place
	SHA256 string // of the program, checked before every start; "" means not checked
	Limits pluginproc.Limits
	NoMTLS bool // for plugins in languages that cannot do it
	// Env is what its environment has besides the allow-list, as "NAME=value". Dir is its working
	// directory; "" means the host's.
	Env []string
	Dir string
	// CallTime is how long it has for each call until it works; 0 means CallTime.
	CallTime time.Duration
	// SocketDir is where sockets are made; "" means the system's folder for temporary files.
	SocketDir string
	Logger    *slog.Logger // nil means slog.Default(); gets what the plugin writes to stderr and stdout

	hide *redact.Secrets // of its config, as far as they are known; nil means none
}

// Same reports whether a plugin is started in the same way.
func (s Spec) Same(as Spec) bool {
	return s.Place.Same(as.Place) && s.SHA256 == as.SHA256 && s.Limits == as.Limits && s.NoMTLS == as.NoMTLS &&
		s.CallTime == as.CallTime && s.Dir == as.Dir &&
		s.SocketDir == as.SocketDir && slices.Equal(s.Env, as.Env)
}

// Proc is how one process of the plugin is started.
func (s *Spec) Proc() pluginproc.Spec {
	log := cmp.Or(s.Logger, slog.Default())
	env := s.Env
	if me := process.This(); me != "" {
		env = append(slices.Clip(env), wire.HostKey+"="+me)
	}
	return pluginproc.Spec{Path: s.Place.Path, Args: s.Place.Args, SHA256: s.SHA256, Limits: s.Limits, NoMTLS: s.NoMTLS,
		Env: env, Dir: s.Dir, SocketDir: s.SocketDir,
		StartTimeout: cmp.Or(s.CallTime, CallTime),
		OnLog:        func(source, line string) { log.Info(s.hide.Hide(line), "plugin", s.Place.Name, "from", source) }}
}

// Description is a plugin's description of itself.
type Description struct {
	Name              string
	Version, Doc, SDK string
	Emits             []string
	Secrets           []string
	Concurrency       int // items at a time
	Payload           *settings.Schema
	Config            *settings.Schema
	Output            *settings.Schema
	Examples          []*wire.Example
	previous          bool // items bring what their last completed round put out
	policy            ledger.Kind
	calls, batch      int // of its function at a time; items of a call
	wait              time.Duration
}

// Policy is the default policy of a kind of that name that the plugin works. Its Input has no type
// if the plugin does not declare its INPUT: then the kind does.
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

// Describe starts the plugin, asks it what it is and stops it. A plugin of this program is asked without a process.
// A place without a name is one of which it is not known yet. Errors: *pluginproc.StartError, *CallError.
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

// describedBy is what a plugin is by its answer. kind may be "".
func (s *Spec) describedBy(r *wire.DescribeResponse, kind string) (*Description, error) {
	d, err := newDescription(r, s.Place)
	if err != nil {
		return nil, &CallError{Plugin: cmp.Or(s.Place.Name, r.Name), Path: s.Place.Path, Kind: kind,
			Phase: PhaseDescribe, Err: describedWrongly{err}}
	}
	return d, nil
}

// newDescription reads the description of the plugin at a place.
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
	d := &Description{Name: r.Name, Version: r.Version, Doc: r.Doc, SDK: r.Sdk,
		Emits: r.Emits, Secrets: r.Secrets, Examples: r.Examples,
		calls: max(1, int(r.Concurrency)), batch: max(1,
			int(r.MaxBatch)), wait: time.Duration(r.MaxWaitMs) * time.Millisecond,
		policy: ledger.Kind{MaxFailures: int(r.MaxFailures), Timeout: time.Duration(r.TimeoutMs) * time.Millisecond}}
	d.Concurrency = d.calls * d.batch
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
	return d, nil
}

// longestVersion in bytes leaves room for the name and the digest in bounds.MaxWorker: every result has them,
// and every heartbeat. The ledger refuses longer ones.
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

// definition names a plugin and the config that it works with: "urlcheck@0.1.0+3fa9c1". The digest is
// of what the config has, without secrets and what only tunes, that is not the default: a version with a
// setting more works as the one before, and a setting equal to its default does not count.
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
	own, err := json.Marshal(beyond(given, usual)) // in the order of the names
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(own)
	return fmt.Sprintf("%s@%s+%s", d.Name, d.Version, hex.EncodeToString(sum[:3])), nil
}

// beyond is what an object has that another one has not; of objects in it the same. Of other values it
// is the value.
func beyond(given, usual any) any {
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
		if inner := beyond(value, b[name]); !reflect.DeepEqual(inner, map[string]any{}) { // {} is no setting
			own[name] = inner
		}
	}
	return own
}

// ConfigError reports which settings of the config the plugin refuses.
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
	worker     string        // of attempts: the definition, and the checksum of the program where it is known
	config     string        // in force, for people
	places     int           // items that it works at a time
	wait       time.Duration // how long it may wait for a batch to fill
	hide       *redact.Secrets
}

// workerName is what attempts keep of who did them; sha256 is that of a program that is compared before every
// start, "" of others.
func workerName(definition, sha256 string) string {
	const shown = 12 // digits
	if len(sha256) < shown {
		return definition
	}
	return definition + " sha256:" + strings.ToLower(sha256[:shown])
}

// configure fills, checks and splits a config.
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

// launch starts a process and gives it its config. If it cannot the process is gone.
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

// ask starts a process and has it look at its config. If it cannot, or refuses it, the process is gone.
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

// Validate starts the plugin, has it look at a config without putting it to use, and stops it. Errors
// are those of Start.
func Validate(ctx context.Context, c Config) error {
	a, _, err := ask(ctx, &c)
	if err != nil {
		return err
	}
	a.proc.Kill()
	return nil
}

// Check starts the plugin and gives it its config, as Start does, has it look whether what it depends on is
// there, and stops it. The problem is its answer, "" if all is well; errors are those of Start, and that
// there was no answer before the end of ctx.
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

// checkGrace is how long a plugin that was only asked may take to end.
const checkGrace = time.Second
