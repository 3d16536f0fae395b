package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/inputs"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// sourceFlags are the flags of run and add that say what the inputs are.
type sourceFlags struct {
	flags    *pflag.FlagSet
	plugin   string
	input    choice
	dirs     pluginDirs
	set      []string
	scope    string
	every    string
	zone     string
	again    string
	checksum bool
	from     string
	format   choice
	key      string
	rules    []inputs.Rule
	priority int
	resource []string
	dryRun   bool
	queryFlags
	sampleFlags
}

func (s *sourceFlags) define(cmd *cobra.Command) {
	f := cmd.Flags()
	s.flags = f
	f.StringVar(&s.plugin, "plugin", "", "`name` of the plugin that works the kind, where it is not the one of the same name")
	s.input.of = []string{inputs.File, inputs.URL, inputs.Line}
	f.Var(&s.input, "input", "what INPUT is, where the plugin takes any (exec) or there is none; kept with the kind")
	s.dirs.define(f)
	f.StringArrayVar(&s.set, "set", nil, "`NAME=VALUE` (or NAME:=JSON) of the payload: what is to be done; repeated")
	f.StringVar(&s.scope, "scope", "", "`name` of the space within which a key is worked once: a campaign, a push")
	f.StringVar(&s.every, "every", "", "make the items recurring, in this `rhythm`: hour, day, week, a duration (36h) or five cron fields, such as \"0 1 * * mon-fri\" (default: each is worked once)")
	f.StringVar(&s.zone, "zone", "", "time `zone` of --every, such as Europe/Berlin (default: UTC, the same on every machine)")
	f.StringVar(&s.again, "again", "", "work once more what is done or cancelled; with a `duration`, --again=24h: only if it was done longer ago")
	f.Lookup("again").NoOptDefVal = "0s"
	f.BoolVar(&s.checksum, "checksum", false, "tell changed files by their SHA-256 instead of size and time")
	f.StringVar(&s.from, "from", "", "`file` with the inputs, or - for stdin: lines, or by its ending a table (.csv), JSON lines (.jsonl, .ndjson) or a SELECT (.sql)")
	s.format.of = []string{formatLines, formatCSV, formatJSONL, formatSQL}
	f.Var(&s.format, "format", "what --from is, where its name does not tell")
	f.StringVar(&s.key, "key", "", "`column` of the table or query that is the INPUT")
	f.Var(&rules{&s.rules, false}, "include", "of folders, take only files with this name, or path below the folder; repeated")
	f.Var(&rules{&s.rules, true}, "exclude", "leave out files with this name or path; of several --include and --exclude the last that matches counts")
	f.IntVar(&s.priority, "priority", 0, "`number` from -2 (first) to 2 (last)")
	f.StringArrayVar(&s.resource, "resource", nil, "`name` that an item needs for itself while it is worked; {key} in it stands for the item's key, {FIELD} for a field of its payload; repeated")
	f.BoolVar(&s.dryRun, "dry-run", false, "only say what would be added")
	s.queryFlags.define(f)
	s.sampleFlags.define(f)
}

// kind is a kind of work as this machine and this ledger know it.
type kind struct {
	name   string
	policy ledger.Kind
	known  bool         // to the ledger
	config *config.Kind // what the config says of it; not nil
	plugin *plugin      // that works it here; nil if there is none
	schema *settings.Schema
	asked  string // what INPUT is, by --input
	// remembered are the fields of the payload that come from the kind and not from this command, as
	// assignments.
	remembered []string
}

// input is how inputs of the kind are made into items: the plugin knows best.
func (k *kind) input() ledger.Input {
	if !k.takesAny() {
		return k.plugin.Policy(k.name).Input
	}
	input := k.policy.Input
	if k.config.Input != nil {
		input.Type = *k.config.Input
	}
	input.Type = cmp.Or(k.asked, input.Type)
	return input
}

// takesAny tells whether no plugin says what INPUT is.
func (k *kind) takesAny() bool { return k.plugin == nil || k.plugin.Policy(k.name).Input.Type == "" }

// ask has INPUT be what --input says, if nobody knows better.
func (k *kind) ask(input string) error {
	if input != "" && !k.takesAny() {
		if says := k.plugin.Policy(k.name).Input.Type; says != input {
			return usage("bad_flag", "", "--input %s: the plugin %s takes %s", input, k.plugin.Name, inputNames[says])
		}
	}
	k.asked = input
	return nil
}

var inputNames = map[string]string{"file": "files", "url": "URLs", "line": "lines of text"}

// resolve finds out what is known of a kind. l is nil if there is no ledger yet.
func (a *app) resolve(ctx context.Context, l *ledger.Ledger, name, pluginName string, dirs pluginDirs) (*kind, error) {
	k := &kind{name: name, config: a.config.Kind(name)}
	if err := checkKind(name); err != nil {
		return nil, err
	}
	if l != nil {
		policy, err := l.Kind(ctx, name)
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return nil, err
		}
		k.policy, k.known = policy, err == nil
	}
	configured := a.config.PluginOf(name)
	wanted := cmp.Or(pluginName, configured, k.policy.Plugin, name)
	var err error
	k.plugin, err = a.findPlugin(ctx, wanted, dirs)
	switch {
	case isNoPlugin(err) && pluginName != "":
		return nil, a.noPlugin(ctx, pluginName, dirs)
	case isNoPlugin(err) && !k.known && configured != "":
		return nil, a.noPlugin(ctx, configured, dirs)
	case isNoPlugin(err) && !k.known && k.config.Input == nil:
		return nil, a.unknownKind(ctx, l, name, dirs)
	case err != nil && !isNoPlugin(err):
		return nil, err
	}
	if k.plugin != nil {
		k.schema = k.plugin.Payload
	} else if k.schema, err = settings.Compile([]byte("{}")); err != nil { // nothing is known of it
		return nil, err
	}
	return k, nil
}

// checkKind refuses what is no name of a kind.
func checkKind(name string) error {
	if err := ledger.CheckItem(ledger.NewItem{Kind: name, Key: "-"}); err != nil {
		return usage("invalid", "", "%q is no name of a kind: %v", name, strings.TrimPrefix(err.Error(), "kind: "))
	}
	return nil
}

// source makes the inputs of what was typed.
func (a *app) source(k *kind, s sourceFlags, args []string) (*inputs.Source, error) {
	base, err := a.config.Payload(k.name, k.schema)
	if err != nil {
		return nil, err
	}
	payload, given, remembered, err := k.payload(base, s.set)
	if err != nil {
		return nil, err
	}
	k.remembered = remembered
	s = s.over(k.config)
	lines, csv, jsonl, _ := s.list()
	src := &inputs.Source{
		Template:  ledger.NewItem{Kind: k.name, Scope: s.scope, Priority: int16(s.priority), Every: s.every, Zone: s.zone},
		Resources: s.resource,
		Input:     k.input(), Payload: payload, Given: given, Args: args, From: lines, CSV: csv, JSONL: jsonl, Key: s.key, Rules: s.rules,
		Checksum: s.checksum, Stdin: a.stdin, Parse: k.schema.Parse, Fields: map[string]string{},
		Validate: func(payload []byte) error {
			return k.payloadError(k.schema.Validate(payload), s.set)
		},
	}
	for _, f := range k.schema.Fields() {
		src.Fields[f.Name] = f.Type
	}
	if s.priority < ledger.MinPriority || s.priority > ledger.MaxPriority {
		return nil, usage("bad_flag", "", "--priority %d: must be %d … %d", s.priority, ledger.MinPriority, ledger.MaxPriority)
	}
	if err := ledger.CheckItem(ledger.NewItem{Kind: k.name, Key: "-", Resources: s.resource}); err != nil {
		return nil, usage("bad_flag", "", "--resource: %v", strings.TrimPrefix(err.Error(), "resources: "))
	}
	if s.again != "" {
		d, err := ledger.ParseDuration(s.again)
		if err != nil {
			return nil, usage("bad_flag", "", "--again=%s: %v", s.again, err)
		}
		src.Template.Again.Cancelled = true
		src.Template.Again.DoneBefore = time.Now().Add(-d)
	}
	if s.every != "" || s.zone != "" {
		if err := ledger.CheckItem(ledger.NewItem{Kind: k.name, Key: "-", Every: s.every, Zone: s.zone}); err != nil {
			return nil, policyError(err)
		}
	}
	if err := s.sampleFlags.check(); err != nil {
		return nil, err
	}
	if s.sample > 0 {
		src.Template.Source = s.mark(args, payload)
	}
	return src, nil
}

// over gives what was not typed the value that the config has for items of the kind.
func (s sourceFlags) over(k *config.Kind) sourceFlags {
	if s.every == "" && s.zone == "" {
		s.zone = k.Zone
	}
	s.every = cmp.Or(s.every, k.Every)
	if !s.flags.Changed("priority") {
		s.priority = k.Priority
	}
	return s
}

// payloadError explains what is wrong with --set.
func (k *kind) payloadError(err error, given []string) error {
	other := settingsAt{}
	if k.plugin != nil {
		other = settingsAt{"--with", k.plugin.Config}
	}
	return settingError(err, k.name, settingsOf{"payload", "--set", given}, other)
}

// settingsOf are settings as they were given.
type settingsOf struct {
	what, flag string
	given      []string
}

// settingsAt are the settings of the other flag, with which one may be mixed up.
type settingsAt struct {
	flag   string
	schema *settings.Schema
}

// settingError says which --set or --with is wrong, and how to see what there is.
func settingError(err error, kind string, of settingsOf, other settingsAt) error {
	bad, ok := errors.AsType[*settings.Error](err)
	if !ok {
		return err
	}
	var lines []string
	suggestion := ""
	for _, p := range bad.Problems {
		typed := ""
		for _, g := range of.given {
			if strings.HasPrefix(g, p.Field+"=") || strings.HasPrefix(g, p.Field+":=") {
				typed = fmt.Sprintf(" (%s %s)", of.flag, g)
			}
		}
		if p.Unknown {
			lines = append(lines, fmt.Sprintf("%s has no %s field %q%s", kind, of.what, p.Field, typed))
			if near := cmp.Or(p.Suggestion, other.near(p.Field)); near != "" {
				suggestion = "did you mean " + near + "?   "
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s", kind, p))
	}
	return usage("bad_setting", fmt.Sprintf("%sfields: ledgerd run %s --help", suggestion, kind), "%s", strings.Join(lines, "\n"))
}

// near is the other flag with the field that may have been meant.
func (o settingsAt) near(field string) string {
	if o.schema == nil {
		return ""
	}
	var names []string
	for _, f := range o.schema.Fields() {
		names = append(names, f.Name)
	}
	return prefixed(o.flag+" ", settings.Suggest(field, names))
}

// job is a command that adds inputs, with all that was looked up for it.
type job struct {
	app    *app
	ledger *opened // nil in a dry run without a ledger
	kind   *kind
	source *inputs.Source
	flags  sourceFlags
}

func (j *job) close() {
	if j.source != nil && j.source.Query != nil {
		_ = j.source.Query.Close() // it was only read
	}
	if j.ledger != nil {
		j.ledger.Close()
	}
}

// prepare looks up the kind, checks everything that was typed, and then opens the ledger, which
// it makes if there is none. check may refuse before that; nil means that it does not.
func (a *app) prepare(ctx context.Context, s sourceFlags, name string, args []string, check func(*kind) error) (_ *job, err error) {
	at, err := a.address()
	if err != nil {
		return nil, err
	}
	if s.format.value != "" && s.from == "" {
		return nil, usage("bad_flag", "name the file: --from FILE", "--format goes with --from")
	}
	if s.sample > 0 && s.seed == "" {
		s.seed = chance()
	}
	j := &job{app: a, flags: s}
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	if j.ledger, err = a.openAt(ctx, at, false); err != nil && !errors.Is(err, ledger.ErrNoLedger) {
		return nil, err
	}
	var known *ledger.Ledger
	if j.ledger != nil {
		known = j.ledger.Ledger
	}
	if j.kind, err = a.resolve(ctx, known, name, s.plugin, s.dirs); err != nil {
		return nil, err
	}
	if err = j.kind.ask(s.input.value); err != nil {
		return nil, err
	}
	if j.source, err = a.source(j.kind, s, args); err != nil {
		return nil, err
	}
	if j.source.Query, err = a.openQuery(ctx, s); err != nil {
		return nil, err
	}
	if err = j.source.Check(); err != nil {
		return nil, err
	}
	if check != nil {
		if err := check(j.kind); err != nil {
			return nil, err
		}
	}
	if j.ledger == nil && !s.dryRun {
		if j.ledger, err = a.openAt(ctx, at, true); err != nil {
			return nil, err
		}
		j.ledger.isNew = true
	}
	if j.ledger != nil {
		a.announce(j.ledger)
	}
	j.sayRemembered(j.kind.remembered)
	return j, nil
}

// untouched says of a kind that it is new, or known only because an item of it was emitted, or added by
// another program, or because it was paused: nobody has said how it is treated.
func untouched(k ledger.Kind) bool {
	if k.OnLost == ledger.OnLostRepeat {
		k.OnLost = ""
	}
	return reflect.DeepEqual(k, ledger.Kind{Name: k.Name, Paused: k.Paused})
}

// defaults is the policy of a kind with the plugin's defaults if it is untouched. A plugin that is not
// here (nil) has none.
func (p *plugin) defaults(kind string, have ledger.Kind) ledger.Kind {
	if p == nil || !untouched(have) {
		return have
	}
	policy := p.Policy(kind)
	policy.Paused = have.Paused
	return policy
}

func (k *kind) edit(ctx context.Context, l *ledger.Ledger, writer string, edit func(have *ledger.Kind, known bool)) (err error) {
	k.policy, err = l.EditKind(ctx, writer, k.name, edit)
	k.known = err == nil
	return err
}

// adder makes what adds the inputs of the job.
func (j *job) adder(ctx context.Context) (d *adder, err error) {
	d = &adder{source: j.source, add: j.adding()}
	if j.flags.sample > 0 {
		var l *ledger.Ledger
		if j.ledger != nil {
			l = j.ledger.Ledger
		}
		d.draw, err = newDraw(ctx, l, j.source.Template, j.flags.sample, j.flags.seed)
	}
	return d, err
}

// adding is how the job adds: in a dry run nothing is kept.
func (j *job) adding() func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
	switch {
	case !j.flags.dryRun:
		return func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
			return j.ledger.Add(ctx, items...)
		}
	case j.ledger != nil:
		return func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
			return j.ledger.Try(ctx, items...)
		}
	}
	return func(_ context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
		added := make([]ledger.Added, len(items)) // to a ledger that is not there everything is new
		for i := range added {
			added[i] = ledger.Added{Verdict: ledger.VerdictAdded, State: ledger.StateReady}
		}
		return added, nil
	}
}
