package app

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Global are the flags of every command.
type Global struct {
	Db           string
	tokenFile    string
	ConfigFile   string
	Output       ChoiceFlag
	columns      []string
	raw          bool
	Quiet        bool
	Verbose      bool
	Progress     ChoiceFlag
	color        ChoiceFlag
	ErrorOnEmpty bool
	Yes          bool
}

// Define adds the flags to a command.
func (g *Global) Define(f *pflag.FlagSet) {
	f.StringVar(&g.Db, "db", "", "`URL` of the ledger: "+dburl.Forms+", or https://host/prefix of an HTTP API "+
		"(default: a file in the user's data directory)")
	f.StringVar(&g.tokenFile, "token-file", "", "`file` with the token for --db https://… (default: the token in "+
		"LEDGERD_TOKEN)")
	f.StringVar(&g.ConfigFile, "config", "", "config `file` (default: ledgerd/ledgerd.toml in $XDG_CONFIG_HOME or "+
		"~/.config, else /etc/ledgerd/ledgerd.toml)")
	g.Output = ChoiceFlag{Value: string(report.Table), Of: []string{"table", "json", "jsonl", "csv"}}
	f.VarP(&g.Output, "output", "o", "format of what goes to stdout")
	f.StringSliceVar(&g.columns, "columns", nil,
		"`columns` of a table or CSV, or fields of rows in JSON, separated by commas")
	f.BoolVar(&g.raw, "raw", false, "CSV for programs: text as it is, also what a spreadsheet would calculate and a "+
		"terminal would act on")
	f.BoolVarP(&g.Quiet, "quiet", "q", false, "nothing on stderr but errors")
	f.BoolVarP(&g.Verbose, "verbose", "v", false, "more on stderr: what programs do and plugins write")
	g.Progress = ChoiceFlag{Value: "auto", Of: []string{"auto", "bar", "plain", "json", "off"}}
	f.Var(&g.Progress, "progress", "how progress is shown on stderr; auto: a bar on a terminal, else plain lines")
	g.color = ChoiceFlag{Value: "auto", Of: []string{"auto", "always", "never"}}
	f.Var(&g.color, "color", "colours; auto: on a terminal, unless NO_COLOR is set")
	f.BoolVar(&g.ErrorOnEmpty, "error-on-empty", false, "exit with 9 if there was nothing to do or to show")
	f.BoolVarP(&g.Yes, "yes", "y", false, "do not ask")
	FromConfig(f, "db")
	for _, name := range []string{"config", "token-file", "output", "progress", "color"} {
		FromEnv(f, name)
	}
}

// RowsAnnotation marks commands that print a list of rows as JSON, so that --columns can choose their fields.
const RowsAnnotation = "rows"

// CheckColumns refuses --raw and --columns with a format that has no place for them.
func (g *Global) CheckColumns(cmd *cobra.Command) error {
	o := report.Format(g.Output.String())
	if g.raw && o != report.CSV {
		return failure.Usage("bad_flag", "JSON always has text as it is, with \\uXXXX for what a terminal would act on; "+
			"tables are for people", "--raw goes with -o csv, not with -o %s", o)
	}
	if g.columns != nil && o != report.Table && o != report.CSV && cmd.Annotations[RowsAnnotation] == "" {
		return failure.Usage("bad_flag", "a program takes what it needs of this JSON",
			"--columns of %s goes with -o table and -o csv, not with -o %s", cmd.Name(), o)
	}
	return nil
}

// EnvAnnotation has the name of a flag's environment variable.
const EnvAnnotation = "env"

// FromEnv lets LEDGERD_NAME set a flag that is not on the command line.
func FromEnv(f *pflag.FlagSet, name string) {
	fl := f.Lookup(name)
	env := "LEDGERD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	fl.Annotations = map[string][]string{EnvAnnotation: {env}}
}

// addressFlags may hold a password, so the variable LEDGERD_NAME_FILE may name a file with the value. Package config
// does the same for --db.
var addressFlags = []string{"from", "to"}

// fromEnvironment sets the flags of FromEnv that were not typed. Flags of FromConfig are left to Configure: the config
// reads their variables, too.
func fromEnvironment(f *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	f.VisitAll(func(fl *pflag.Flag) {
		names := fl.Annotations[EnvAnnotation]
		if len(names) == 0 || fl.Changed || failed != nil {
			return
		}
		if fl.Annotations[configAnnotation] != nil {
			return
		}
		env := names[0]
		value, _ := lookup(env)
		if file, ok := lookup(env + "_FILE"); ok && file != "" && value == "" && slices.Contains(addressFlags, fl.Name) {
			content, err := os.ReadFile(file)
			if err != nil {
				failed = failure.Usage("bad_environment", "", "%s_FILE: %v", env, err)
				return
			}
			value = strings.TrimSpace(string(content))
		}
		if value == "" {
			return
		}
		if err := fl.Value.Set(value); err != nil {
			failed = failure.Usage("bad_environment", "", "%s=%s: %v", env, value, err)
		}
	})
	return failed
}

// ChoiceFlag is a flag whose value must be one of a list.
type ChoiceFlag struct {
	Value string
	Of    []string
}

func (c *ChoiceFlag) String() string { return c.Value }
func (c *ChoiceFlag) Type() string   { return strings.Join(c.Of, "|") }
func (c *ChoiceFlag) Set(s string) error {
	if !slices.Contains(c.Of, s) {
		hint := ""
		if near := settings.Suggest(s, c.Of); near != "" {
			hint = "; did you mean " + near + "?"
		}
		return fmt.Errorf("must be one of %s%s", strings.Join(c.Of, ", "), hint)
	}
	c.Value = s
	return nil
}

// DurationFlag is a flag that also knows days and weeks.
type DurationFlag struct{ time.Duration }

func (d *DurationFlag) Type() string { return "duration" }
func (d *DurationFlag) String() string {
	if d.Duration == 0 {
		return "" // pflag then shows no default
	}
	return config.FormatDuration(d.Duration)
}
func (d *DurationFlag) Set(s string) (err error) {
	d.Duration, err = recurrence.ParseDuration(s)
	return err
}

// RateFlag is a flag "100/s".
type RateFlag struct{ scheduler.Rate }

func (r *RateFlag) Type() string { return "rate" }
func (r *RateFlag) String() string {
	if r.Count == 0 {
		return ""
	}
	return r.Rate.String()
}
func (r *RateFlag) Set(s string) (err error) {
	r.Rate, err = scheduler.ParseRate(s)
	return err
}

// RetentionFlag is a duration, or "forever".
type RetentionFlag struct{ DurationFlag }

func (r *RetentionFlag) Set(s string) error {
	if s == "forever" {
		r.Duration = ledger.KeepForever
		return nil
	}
	return r.DurationFlag.Set(s)
}

// ShardFlag is a flag "i/n", from 0.
type ShardFlag struct{ scheduler.Shard }

func (s *ShardFlag) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Index, s.Count)
}
func (s *ShardFlag) Type() string { return "i/n" }
func (s *ShardFlag) Set(text string) (err error) {
	s.Shard, err = config.ParseShard(text)
	return err
}

// RuleFlag is --include or --exclude. Both append to one list, in the order in which they are typed.
type RuleFlag struct {
	list    *[]intake.Rule
	exclude bool
}

// NewRules makes --exclude, or --include, of a list.
func NewRules(list *[]intake.Rule, exclude bool) *RuleFlag { return &RuleFlag{list, exclude} }

func (r *RuleFlag) String() string { return "" }
func (r *RuleFlag) Type() string   { return "glob" }
func (r *RuleFlag) Set(s string) error {
	rule, err := intake.ParseRule(r.exclude, s)
	if err == nil {
		*r.list = append(*r.list, rule)
	}
	return err
}

// IsTerminal reports whether a stream is a terminal, with a person at it.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth returns the cells of a line of a terminal; 0 if out is none: then nothing is cut.
func terminalWidth(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}
