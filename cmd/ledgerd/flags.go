package main

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
	"github.com/ledgerd/ledgerd/internal/inputs"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// global are the flags of every command.
type global struct {
	db           string
	configFile   string
	output       choice
	columns      []string
	raw          bool
	quiet        bool
	verbose      bool
	progress     choice
	color        choice
	utc          bool
	errorOnEmpty bool
	yes          bool
}

func (g *global) define(f *pflag.FlagSet) {
	f.StringVar(&g.db, "db", "", "`URL` of the ledger: sqlite:PATH or postgres://user@host/name (default: a file in the user's data directory)")
	f.StringVar(&g.configFile, "config", "", "config `file` (default: ledgerd/ledgerd.toml in $XDG_CONFIG_HOME or ~/.config, else /etc/ledgerd/ledgerd.toml)")
	g.output = choice{value: string(report.Table), of: []string{"table", "json", "jsonl", "csv"}}
	f.VarP(&g.output, "output", "o", "format of what goes to stdout")
	f.StringSliceVar(&g.columns, "columns", nil, "`columns` of a table or CSV, or fields of rows in JSON, separated by commas")
	f.BoolVar(&g.raw, "raw", false, "CSV for programs: text as it is, also what a spreadsheet would calculate and a terminal would act on")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "nothing on stderr but errors")
	f.BoolVarP(&g.verbose, "verbose", "v", false, "more on stderr: what programs do and plugins write")
	g.progress = choice{value: "auto", of: []string{"auto", "bar", "plain", "json", "off"}}
	f.Var(&g.progress, "progress", "how progress is shown on stderr; auto: a bar on a terminal, else plain lines")
	g.color = choice{value: "auto", of: []string{"auto", "always", "never"}}
	f.Var(&g.color, "color", "colours; auto: on a terminal, unless NO_COLOR is set")
	f.BoolVar(&g.utc, "utc", false, "times in tables in UTC instead of local time")
	f.BoolVar(&g.errorOnEmpty, "error-on-empty", false, "exit with 9 if there was nothing to do or to show")
	f.BoolVarP(&g.yes, "yes", "y", false, "do not ask")
	fromConfig(f, "db")
	for _, name := range []string{"config", "output", "progress", "color", "utc"} {
		fromEnv(f, name)
	}
}

// rowsAnnotation marks commands of which the value in JSON is rows, so that --columns chooses their fields.
const rowsAnnotation = "rows"

func (g *global) checkColumns(cmd *cobra.Command) error {
	o := report.Format(g.output.String())
	if g.raw && o != report.CSV {
		return usage("bad_flag", "JSON always has text as it is, with \\uXXXX for what a terminal would act on; tables are for people", "--raw goes with -o csv, not with -o %s", o)
	}
	if g.columns != nil && o != report.Table && o != report.CSV && cmd.Annotations[rowsAnnotation] == "" {
		return usage("bad_flag", "a program takes what it needs of this JSON", "--columns of %s goes with -o table and -o csv, not with -o %s", cmd.Name(), o)
	}
	return nil
}

// envAnnotation marks flags that have an environment variable.
const envAnnotation = "env"

// fromEnv lets LEDGERD_NAME set a flag that is not on the command line.
func fromEnv(f *pflag.FlagSet, name string) {
	fl := f.Lookup(name)
	env := "LEDGERD_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	fl.Annotations = map[string][]string{envAnnotation: {env}}
}

// addressFlags may hold a password, so their values may be in files that NAME_FILE names. That of --db
// is read with the configuration.
var addressFlags = []string{"from", "to"}

// fromEnvironment sets flags from the environment.
func fromEnvironment(f *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	f.VisitAll(func(fl *pflag.Flag) {
		names := fl.Annotations[envAnnotation]
		if len(names) == 0 || fl.Changed || failed != nil {
			return
		}
		env := names[0]
		value, _ := lookup(env)
		if fl.Annotations[configAnnotation] != nil {
			return
		}
		if file, ok := lookup(env + "_FILE"); ok && file != "" && value == "" && slices.Contains(addressFlags, fl.Name) {
			content, err := os.ReadFile(file)
			if err != nil {
				failed = usage("bad_environment", "", "%s_FILE: %v", env, err)
				return
			}
			value = strings.TrimSpace(string(content))
		}
		if value == "" {
			return
		}
		if err := fl.Value.Set(value); err != nil {
			failed = usage("bad_environment", "", "%s=%s: %v", env, value, err)
		}
	})
	return failed
}

// choice is a flag with a few values.
type choice struct {
	value string
	of    []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.of, "|") }
func (c *choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		hint := ""
		if near := settings.Suggest(s, c.of); near != "" {
			hint = "; did you mean " + near + "?"
		}
		return fmt.Errorf("must be one of %s%s", strings.Join(c.of, ", "), hint)
	}
	c.value = s
	return nil
}

// duration is a flag that also knows days and weeks.
type duration struct{ time.Duration }

func (d *duration) Type() string { return "duration" }
func (d *duration) String() string {
	if d.Duration == 0 {
		return "" // then help shows no default
	}
	return config.FormatDuration(d.Duration)
}
func (d *duration) Set(s string) (err error) {
	d.Duration, err = ledger.ParseDuration(s)
	return err
}

// rateFlag is a flag "100/s".
type rateFlag struct{ ledger.Rate }

func (r *rateFlag) Type() string { return "rate" }
func (r *rateFlag) String() string {
	if r.Count == 0 {
		return "" // then help shows no default
	}
	return r.Rate.String()
}
func (r *rateFlag) Set(s string) (err error) {
	r.Rate, err = ledger.ParseRate(s)
	return err
}

// retention is a duration, or "forever".
type retention struct{ duration }

func (r *retention) Set(s string) error {
	if s == "forever" {
		r.Duration = ledger.KeepForever
		return nil
	}
	return r.duration.Set(s)
}

// shard is a flag "i/n", from 0.
type shard struct{ ledger.Shard }

func (s *shard) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Index, s.Count)
}
func (s *shard) Type() string { return "i/n" }
func (s *shard) Set(text string) (err error) {
	s.Shard, err = config.ParseShard(text)
	return err
}

// rules collects --include and --exclude in the order given.
type rules struct {
	list    *[]inputs.Rule
	exclude bool
}

func (r *rules) String() string { return "" }
func (r *rules) Type() string   { return "glob" }
func (r *rules) Set(s string) error {
	rule, err := inputs.ParseRule(r.exclude, s)
	if err == nil {
		*r.list = append(*r.list, rule)
	}
	return err
}

// isTerminal says whether a person sees what is written there, or types what is read.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth is 0 where nothing must be cut.
func terminalWidth(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}
