// Package input has the flags with which commands name inputs (files, lists, tables, queries, samples) and makes
// an intake.Source of them.
package input

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// SourceFlags are the flags of run and add that describe the inputs.
type SourceFlags struct {
	Flags    *pflag.FlagSet
	Plugin   string
	input    app.ChoiceFlag
	Set      []string
	scope    string
	every    string
	zone     string
	again    string
	checksum bool
	from     string
	format   app.ChoiceFlag
	key      string
	rules    []intake.Rule
	priority int
	shardKey string
	DryRun   bool
	queryFlags
	sampleFlags
}

// Define adds the flags to a command.
func (s *SourceFlags) Define(a *app.App, cmd *cobra.Command) {
	f := cmd.Flags()
	s.Flags = f
	f.StringVar(&s.Plugin, "plugin", "", "`name` of the plugin that works the kind, if that is not the name of the "+
		"kind")
	s.input.Of = []string{intake.File, intake.URL, intake.Line}
	f.Var(&s.input, "input", "what INPUT is, where the plugin takes any (exec) or there is none; kept with the kind")
	a.PluginDirFlag(f)
	f.StringArrayVar(&s.Set, "set", nil, "a field of the payload, as `NAME=VALUE` or NAME:=JSON; the payload tells "+
		"what is to be done with an input; may be repeated")
	f.StringVar(&s.scope, "scope", "", "`name` of the scope of the items, such as a campaign; in each scope a key is "+
		"worked once")
	f.StringVar(&s.every, "every", "", "make the items recurring: each is worked once in every `period`, which is hour, "+
		"day, week, a duration (36h), or five cron fields that name its start, such as \"0 1 * * mon-fri\" (default: each "+
		"is worked once)")
	f.StringVar(&s.zone, "zone", "", "time `zone` of --every, such as Europe/Berlin (default: UTC, the same on every "+
		"machine)")
	f.StringVar(&s.again, "again", "", "work done, dead and cancelled inputs once more; with a `duration`, such as "+
		"--again=24h, a done input only if it was done longer ago")
	f.Lookup("again").NoOptDefVal = "0s"
	f.BoolVar(&s.checksum, "checksum", false, "tell changed files by their SHA-256 instead of size and time")
	f.StringVar(&s.from, "from", "", "`file` with the inputs, or - for stdin; the ending of its name decides what is in "+
		"it: .csv a table, .jsonl or .ndjson JSON lines, .sql a SELECT, any other one input in each line")
	s.format.Of = []string{formatLines, formatCSV, formatJSONL, formatSQL}
	f.Var(&s.format, "format", "what --from is, where its name does not tell")
	f.StringVar(&s.key, "key", "", "`column` of the table or query that is the INPUT")
	f.Var(app.NewRules(&s.rules, false), "include", "of folders, take only files with this name, or path below the "+
		"folder; may be repeated")
	f.Var(app.NewRules(&s.rules, true), "exclude", "leave out files with this name or path; of several --include and "+
		"--exclude the last that matches counts")
	f.IntVar(&s.priority, "priority", 0, "`number` from -2 (first) to 2 (last)")
	f.StringVar(&s.shardKey, "shard-key", "", "`name` under which a new item counts where its kind has limits for each "+
		"shard key; {key} in it stands for the item's key, {FIELD} for a field of its payload (default: of a URL its "+
		"host, else the key)")
	f.BoolVar(&s.DryRun, "dry-run", false, "only print what would be added")
	s.queryFlags.define(f)
	s.sampleFlags.define(f)
}

// Source returns the inputs that the flags and arguments describe, without a query.
func Source(a *app.App, k *kinds.Kind, s SourceFlags, args []string) (*intake.Source, error) {
	base, err := a.Config.Payload(k.Name, k.Schema)
	if err != nil {
		return nil, err
	}
	payload, given, remembered, err := k.Payload(base, s.Set)
	if err != nil {
		return nil, err
	}
	k.Remembered = remembered
	s = s.withConfig(k.Config)
	lines, csv, jsonl, _ := s.list()
	src := &intake.Source{
		Template: ledger.NewItem{Kind: k.Name, Scope: s.scope, Priority: int16(s.priority), Every: s.every, Zone: s.zone},
		ShardKey: s.shardKey, Input: k.Input(), Payload: payload, Given: given, Args: args, From: lines, CSV: csv,
		JSONL: jsonl, Key: s.key, Rules: s.rules, Checksum: s.checksum, Stdin: a.Stdin, Parse: k.Schema.Parse,
		Fields:   map[string]string{},
		Validate: func(payload []byte) error { return k.PayloadError(k.Schema.Validate(payload), s.Set) },
	}
	for _, f := range k.Schema.Fields() {
		src.Fields[f.Name] = f.Type
	}
	if s.priority < bounds.MinPriority || s.priority > bounds.MaxPriority {
		return nil, failure.Usage("bad_flag", "", "--priority %d: must be %d … %d", s.priority, bounds.MinPriority,
			bounds.MaxPriority)
	}
	if s.again != "" {
		d, err := recurrence.ParseDuration(s.again)
		if err != nil {
			return nil, failure.Usage("bad_flag", "", "--again=%s: %v", s.again, err)
		}
		src.Template.Again.Cancelled, src.Template.Again.Dead = true, true
		src.Template.Again.DoneBefore = time.Now().Add(-d)
	}
	if s.every != "" || s.zone != "" {
		if err := ledger.CheckItem(ledger.NewItem{Kind: k.Name, Key: "-", Every: s.every, Zone: s.zone}); err != nil {
			return nil, app.FieldError(err, "invalid", nil)
		}
	}
	if err := s.sampleFlags.check(s.Flags.Changed("sample")); err != nil {
		return nil, err
	}
	if s.Sample > 0 {
		src.Template.Source = s.mark(args, payload)
	}
	return src, nil
}

// withConfig returns the flags with the values of the config in place of those that were not typed.
func (s SourceFlags) withConfig(k *config.Kind) SourceFlags {
	if s.every == "" && s.zone == "" {
		s.zone = k.Zone
	}
	s.every = cmp.Or(s.every, k.Every)
	if !s.Flags.Changed("priority") {
		s.priority = k.Priority
	}
	return s
}

// Job is a command that adds inputs, ready to run.
type Job struct {
	App    *app.App
	Ledger *app.Opened // nil in a dry run without a ledger
	Kind   *kinds.Kind
	Source *intake.Source
	Flags  SourceFlags
}

// Close closes the ledger and the query.
func (j *Job) Close() {
	if j.Source != nil && j.Source.Query != nil {
		_ = j.Source.Query.Close() // it was only read
	}
	if j.Ledger != nil {
		j.Ledger.Close()
	}
}

// Prepare resolves the kind and checks the command line. Only then, unless it is a dry run, it makes the ledger if
// there is none. check is called before that and may refuse; it may be nil.
func Prepare(ctx context.Context, a *app.App, s SourceFlags, name string, args []string,
	check func(*kinds.Kind) error) (_ *Job, err error) {
	if s.format.Value != "" && s.from == "" {
		return nil, failure.Usage("bad_flag", "name the file: --from FILE", "--format goes with --from")
	}
	if s.Sample > 0 && s.Seed == "" {
		s.Seed = intake.Chance()
	}
	j := &Job{App: a, Flags: s}
	defer func() {
		if err != nil {
			j.Close()
		}
	}()
	if j.Ledger, err = a.Reach(ctx, app.ToAct(s.DryRun)); err != nil && !errors.Is(err, ledger.ErrNoLedger) {
		return nil, err
	}
	var known ledgers.Any
	if j.Ledger != nil {
		known = j.Ledger.Any
	}
	if j.Kind, err = a.Resolve(ctx, known, name, s.Plugin); err != nil {
		return nil, err
	}
	if err = j.Kind.Ask(s.input.Value); err != nil {
		return nil, err
	}
	if j.Source, err = Source(a, j.Kind, s, args); err != nil {
		return nil, err
	}
	if j.Source.Query, err = openQuery(ctx, a, s); err != nil {
		return nil, err
	}
	if err = j.Source.Check(); err != nil {
		return nil, err
	}
	if check != nil {
		if err := check(j.Kind); err != nil {
			return nil, err
		}
	}
	if j.Ledger == nil && !s.DryRun {
		if j.Ledger, err = a.Reach(ctx, app.ToMake); err != nil {
			return nil, err
		}
	}
	if j.Ledger != nil {
		a.Announce(j.Ledger)
		if again := &j.Source.Template.Again; !again.DoneBefore.IsZero() { // compared with times of the ledger's clock
			now, err := j.Ledger.Now(ctx)
			if err != nil {
				return nil, err
			}
			again.DoneBefore = again.DoneBefore.Add(time.Until(now))
		}
	}
	j.sayRemembered(j.Kind.Remembered)
	j.warnOfFiles(args)
	return j, nil
}

// Add adds the inputs of the job. The journal has one act for all items that are opened again.
func (j *Job) Add(ctx context.Context, d *intake.Adder) error {
	words := []string{j.Kind.Name}
	for _, arg := range j.Source.Args {
		words = append(words, shell.Quote(arg))
	}
	for _, flag := range []string{"from", "every", "again", "due"} {
		if f := j.Flags.Flags.Lookup(flag); f != nil && f.Changed {
			words = append(words, "--"+flag+"="+shell.Quote(f.Value.String()))
		}
	}
	return d.Run(ledger.AddingAct(ctx, app.Actor(), strings.Join(words, " ")))
}

// Adder returns what adds the inputs of the job.
func (j *Job) Adder(ctx context.Context) (d *intake.Adder, err error) {
	d = &intake.Adder{Source: j.Source, Add: j.adding()}
	if j.Flags.Sample > 0 {
		var l ledgers.Any
		if j.Ledger != nil {
			l = j.Ledger.Any
		}
		d.Draw, err = intake.NewDraw(ctx, l, j.Source.Template, j.Flags.Sample, j.Flags.Seed)
	}
	return d, err
}

// adding returns the function that adds items. In a dry run it only returns what the ledger would answer.
func (j *Job) adding() func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
	switch {
	case !j.Flags.DryRun:
		return func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
			return j.Ledger.Add(ctx, items...)
		}
	case j.Ledger != nil:
		return func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
			return j.Ledger.Try(ctx, items...)
		}
	}
	return func(_ context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
		added := make([]ledger.Added, len(items)) // there is no ledger: every item would be new
		for i := range added {
			added[i] = ledger.Added{Verdict: ledger.VerdictAdded, State: ledger.StateReady}
		}
		return added, nil
	}
}

// Formats of --from.
const (
	formatLines = "lines" // one INPUT per line; # begins a comment
	formatCSV   = "csv"   // a header, then one item per row
	formatJSONL = "jsonl" // one JSON object per line
	formatSQL   = "sql"   // one SELECT
)

// list returns --from in the place of its format; the others are "".
func (s *SourceFlags) list() (lines, csv, jsonl, sql string) {
	format := s.format.Value
	if format == "" {
		switch strings.ToLower(filepath.Ext(s.from)) {
		case ".csv":
			format = formatCSV
		case ".jsonl", ".ndjson":
			format = formatJSONL
		case ".sql":
			format = formatSQL
		}
	}
	switch format {
	case formatCSV:
		csv = s.from
	case formatJSONL:
		jsonl = s.from
	case formatSQL:
		sql = s.from
	default:
		lines = s.from
	}
	return lines, csv, jsonl, sql
}

// sqlFile returns --from if it is a file with a SELECT, else "".
func (s *SourceFlags) sqlFile() string {
	_, _, _, sql := s.list()
	return sql
}

// sampleFlags are the flags of a random sample of a list.
type sampleFlags struct {
	Sample int
	Seed   string
}

func (s *sampleFlags) define(f *pflag.FlagSet) {
	f.IntVar(&s.Sample, "sample", 0,
		"add only `N` of the inputs, drawn by chance from those that are not known in the scope")
	f.StringVar(&s.Seed, "seed", "", "`text` that decides --sample: the same gives the same sample on every database; "+
		"run again, it is completed, not repeated")
}

func (s *sampleFlags) check(isGiven bool) error {
	switch {
	case isGiven && (s.Sample < 1 || s.Sample > intake.MaxSample):
		return failure.Usage("bad_flag", "", "--sample %d: must be 1 … %d", s.Sample, intake.MaxSample)
	case s.Sample == 0 && s.Seed != "":
		return failure.Usage("bad_flag", "", "--seed goes with --sample")
	case len(s.Seed) > 100:
		return failure.Usage("bad_flag", "", "--seed: %d bytes, at most 100", len(s.Seed))
	}
	return nil
}

// mark returns the source of the items of a sample: the list, the seed and a digest of the payload. By it the same
// command finds the items that it added before it was killed.
func (s *SourceFlags) mark(args []string, payload []byte) string {
	list := cmp.Or(s.from, strings.Join(args, " "))
	if len(list) > 200 {
		list = list[:200]
	}
	digest := sha256.Sum256(payload)
	return strings.ToValidUTF8(fmt.Sprintf("%s, sample %s, %x", filepath.Base(list), s.Seed, digest[:4]), "")
}

// Remember keeps --set with the kind, or prints why it does not.
func (j *Job) Remember(ctx context.Context) error {
	unkept, err := j.Kind.Remember(ctx, j.Ledger.Any, j.Flags.Set)
	if err != nil || len(unkept.Set) == 0 || j.App.Quiet {
		return err
	}
	command := "ledgerd kind set " + shell.Quote(j.Kind.Name)
	for _, a := range unkept.Set {
		command += " --set " + shell.Quote(a)
	}
	j.App.Advise(j.App.Stderr, "set: for these inputs only, as %s is about single ones; for all of kind %s: %s\n",
		unkept.Single, j.Kind.Name, command)
	return nil
}

// warnOfFiles warns if a line of text is the name of a file: the lines in it may be meant.
func (j *Job) warnOfFiles(args []string) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err == nil && info.Mode().IsRegular() && j.Kind.Input().Type == intake.Line && !j.App.Quiet {
			fmt.Fprintf(j.App.Stderr, "warning: the file %s is taken as one line of text; for the lines in it: --from %[1]s\n",
				shell.Quote(arg))
		}
	}
}

// sayRemembered prints the values of the payload that come from the kind and not from this command.
func (j *Job) sayRemembered(remembered []string) {
	if len(remembered) == 0 || j.App.Quiet {
		return
	}
	var texts []string
	for _, a := range remembered {
		name, value, _ := strings.Cut(a, ":=")
		texts = append(texts, shell.Quote(kinds.Assignment(name, json.RawMessage(value))))
	}
	j.App.Advise(j.App.Stderr, "set: %s (for new items, as kind %s was told before; other values: --set, all of them: "+
		"ledgerd kind show %s)\n", strings.Join(texts, " "), j.Kind.Name, j.Kind.Name)
}
