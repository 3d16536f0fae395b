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
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Spec says which plugin to start, and how.
type Spec struct {
	Place  Place
	SHA256 string // of the program, checked before every start; "" means not checked
	Limits pluginproc.Limits
	NoMTLS bool // for plugins in languages that cannot do it
	// Env is what its environment has besides the allow-list, as "NAME=value". Dir is its working
	// directory; "" means the host's.
	Env []string
	Dir string
	// SocketDir is where sockets are made; "" means the system's folder for temporary files.
	SocketDir string
	Logger    *slog.Logger // nil means slog.Default(); gets what the plugin writes to stderr and stdout
}

// Proc is how one process of the plugin is started.
func (s *Spec) Proc() pluginproc.Spec {
	log := s.Logger
	if log == nil {
		log = slog.Default()
	}
	env := s.Env
	if me := ledger.ThisProcess(); me != "" {
		env = append(slices.Clip(env), wire.HostKey+"="+me)
	}
	return pluginproc.Spec{Path: s.Place.Path, Args: s.Place.Args, SHA256: s.SHA256, Limits: s.Limits, NoMTLS: s.NoMTLS, Env: env, Dir: s.Dir, SocketDir: s.SocketDir,
		OnLog: func(source, line string) { log.Info(line, "plugin", s.Place.Name, "from", source) }}
}

// Description is what a plugin says of itself.
type Description struct {
	Name              string // of its place, else as it calls itself
	Calls             string // as it calls itself
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
// if the plugin does not say what INPUT is: whoever makes the kind does.
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

// Describe starts the plugin, asks it what it is and stops it. A place without a name is one of which
// it is not known yet.
func Describe(ctx context.Context, s Spec) (*Description, error) {
	p, err := pluginproc.Start(ctx, s.Proc())
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	return describe(ctx, p, s.Place)
}

func describe(ctx context.Context, p *pluginproc.Proc, place Place) (*Description, error) {
	r, err := p.Describe(ctx, &wire.DescribeRequest{})
	if err != nil {
		return nil, fmt.Errorf("plugin %s (%s) does not say what it is: %w", place.Name, place.Path, err)
	}
	if calls := cmp.Or(place.Calls, place.Name); calls != "" && r.Name != calls {
		return nil, fmt.Errorf("plugin %s (%s) calls itself %q; rename the program or the plugin", place.Name, place.Path, r.Name)
	}
	if err := checkVersion(r.Version); err != nil {
		return nil, fmt.Errorf("plugin %s (%s): %w", place.Name, place.Path, err)
	}
	d := &Description{Name: cmp.Or(place.Name, r.Name), Calls: r.Name, Version: r.Version, Doc: r.Doc, SDK: r.Sdk, Emits: r.Emits, Secrets: r.Secrets, Examples: r.Examples,
		calls: max(1, int(r.Concurrency)), batch: max(1, int(r.MaxBatch)), wait: time.Duration(r.MaxWaitMs) * time.Millisecond,
		policy: ledger.Kind{MaxFailures: int(r.MaxFailures), Timeout: time.Duration(r.TimeoutMs) * time.Millisecond}}
	d.Concurrency = d.calls * d.batch
	d.previous = slices.Contains(r.Features, wire.FeaturePrevious)
	if r.OnLost == wire.OnLost_ON_LOST_DOUBT {
		d.policy.OnLost = ledger.OnLostDoubt
	}
	if r.Input != nil {
		d.policy.Input = ledger.Input{Type: r.Input.Type, Field: r.Input.Field, Match: r.Match, Modified: r.Input.Modified, Owner: r.Input.Owner}
	}
	for _, schema := range []struct {
		name string
		text []byte
		to   **settings.Schema
	}{{"input", r.InputSchema, &d.Payload}, {"config", r.ConfigSchema, &d.Config}, {"output", r.OutputSchema, &d.Output}} {
		if *schema.to, err = settings.Compile(schema.text); err != nil {
			return nil, fmt.Errorf("plugin %s (%s): its %s schema: %w", place.Name, place.Path, schema.name, err)
		}
	}
	return d, nil
}

// longestVersion in bytes leaves room for the name and the digest in ledger.MaxWorker: every result has them,
// and every heartbeat, which would not be taken otherwise.
const longestVersion = 100

func checkVersion(version string) error {
	if len(version) > longestVersion || strings.ContainsFunc(version, func(r rune) bool { return !unicode.IsGraphic(r) || r == utf8.RuneError }) {
		return fmt.Errorf("its version is not text of at most %d bytes: %q", longestVersion, version[:min(len(version), longestVersion)])
	}
	return nil
}

// definition names a plugin and the config that it works with: "urlcheck@0.1.0+3fa9c1". The digest is
// of what the config has, without secrets, that is not the default: a version with a setting more works
// as the one before, and what is given as it is anyway says nothing.
func (d *Description) definition(config []byte) (string, error) {
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
		if before, has := b[name]; !has || !reflect.DeepEqual(value, before) {
			own[name] = beyond(value, before)
		}
	}
	return own
}

// ConfigError says which settings of the config the plugin refuses.
type ConfigError struct {
	Plugin   string
	Problems []*wire.Problem
}

func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Message
		if p.Field != "" {
			lines[i] = p.Field + ": " + p.Message
		}
	}
	return fmt.Sprintf("plugin %s refuses its config: %s", e.Plugin, strings.Join(lines, "; "))
}

// setup is a plugin with its config.
type setup struct {
	about      *Description
	request    *wire.ConfigureRequest
	definition string
	places     int           // items that it works at a time
	wait       time.Duration // how long it may wait for a batch to fill
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
	return &setup{
		about: d, definition: definition,
		request: &wire.ConfigureRequest{Config: rest, Secrets: secrets, Concurrency: int32(c.Concurrency)},
		places:  cmp.Or(c.Concurrency, d.calls) * d.batch, wait: d.wait,
	}, nil
}

// setupTime is how long a plugin may take to say what it is, and to open its config.
const setupTime = time.Minute

// launch starts a process and gives it its config. If it cannot the process is gone.
func launch(ctx context.Context, c *Config) (*pluginproc.Proc, *setup, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, setupTime, fmt.Errorf("plugin %s was not ready within %s", c.Place.Name, setupTime))
	defer cancel()
	p, err := pluginproc.Start(ctx, c.Proc())
	if err != nil {
		return nil, nil, err
	}
	s, err := configure(ctx, p, c, false)
	if err == nil {
		return p, s, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if status.Code(err) == codes.Unavailable { // it is about to be seen dead, and its end says more
		select {
		case <-p.Done():
		case <-time.After(time.Second):
		}
	}
	p.Kill()
	return nil, nil, errors.Join(err, p.Err())
}

// Validate starts the plugin, has it look at a config without putting it to use, and stops it. Errors
// are those of Start.
func Validate(ctx context.Context, c Config) error {
	p, err := pluginproc.Start(ctx, c.Proc())
	if err != nil {
		return err
	}
	defer p.Kill()
	_, err = configure(ctx, p, &c, true)
	return err
}

// Check starts the plugin and gives it its config, as Start does, has it look whether what it depends on is
// there, and stops it. The problem is what it says, "" if all is well; errors are those of Start, and that
// there was no answer before the end of ctx.
func Check(ctx context.Context, c Config) (problem string, err error) {
	p, _, err := launch(ctx, &c)
	if err != nil {
		return "", err
	}
	defer p.Stop(ctx, checkGrace)
	problem, err = p.CheckHealth(ctx)
	if _, bounded := ctx.Deadline(); bounded && status.Code(err) == codes.DeadlineExceeded {
		<-ctx.Done() // the plugin's side may tell of it a moment before
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return problem, err
}

// checkGrace is how long a plugin that was only asked may take to end.
const checkGrace = time.Second

func configure(ctx context.Context, p *pluginproc.Proc, c *Config, validateOnly bool) (*setup, error) {
	d, err := describe(ctx, p, c.Place)
	if err != nil {
		return nil, err
	}
	s, err := d.configure(c)
	if err != nil {
		return nil, err
	}
	s.request.ValidateOnly = validateOnly
	problems, err := p.Configure(ctx, s.request)
	if err == nil && len(problems) > 0 {
		err = &ConfigError{d.Name, problems}
	}
	return s, err
}
