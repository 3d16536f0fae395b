package setup

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/sdk"
)

// DocsCommand writes docs/cli.md: every command as its help has it, and what scripts rely on.
func DocsCommand(a *app.App, root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "docs [config | api | plugins DIR]", Short: "Print the reference of the command line or of the config file as " +
			"Markdown, or write those of the bundled plugins", Hidden: true,
		GroupID: app.GroupSetUp, Args: app.Arguments(0, 2),
		Annotations: map[string]string{app.WithoutConfig: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && args[0] == "config":
				_, err := io.WriteString(cmd.OutOrStdout(), config.Reference())
				return err
			case len(args) == 1 && args[0] == "api":
				_, err := io.WriteString(cmd.OutOrStdout(), api.Reference())
				return err
			case len(args) == 2 && args[0] == "plugins":
				return writePluginReferences(a.Program.Plugins, args[1])
			case len(args) > 0:
				return failure.Usage("usage", "", "docs, docs config, docs api, or docs plugins DIR")
			}
			var b strings.Builder
			b.WriteString(docsHead)
			b.WriteString("## Flags of every command\n\n")
			docsFlags(&b, root.PersistentFlags())
			for _, c := range root.Commands() {
				docsOf(&b, c)
			}
			b.WriteString(docsTail)
			_, err := io.WriteString(cmd.OutOrStdout(), b.String())
			return err
		},
	}
}

// PluginReferences returns the references of the bundled plugins, by the name of the file.
func PluginReferences(linked map[string]func() *sdk.Plugin) (map[string]string, error) {
	files := map[string]string{}
	for name, plugin := range linked {
		text, err := sdk.Reference(plugin())
		if err != nil {
			return nil, err
		}
		files[name+".md"] = generatedMark + text
	}
	return files, nil
}

// generatedMark is the first line of a generated file. It is a comment in Markdown.
const generatedMark = "<!-- Generated from the program by make generate. -->\n\n"

func writePluginReferences(linked map[string]func() *sdk.Plugin, dir string) error {
	files, err := PluginReferences(linked)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func docsOf(b *strings.Builder, c *cobra.Command) {
	if !c.IsAvailableCommand() {
		return
	}
	if !c.HasSubCommands() {
		c.InheritedFlags() // makes them known to UseLine
		fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
		fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
		if long := strings.TrimPrefix(c.Long, c.Short+".\n\n"); long != "" { // the help of some begins with it
			fmt.Fprintf(b, "\n%s\n", long)
		}
		if c.Example != "" {
			fmt.Fprintf(b, "\n```\n%s\n```\n", c.Example)
		}
		if c.LocalNonPersistentFlags().HasAvailableFlags() {
			b.WriteString("\n")
			docsFlags(b, c.LocalNonPersistentFlags())
		}
	}
	for _, below := range c.Commands() {
		docsOf(b, below)
	}
}

func docsFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | what it is |\n|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, text := pflag.UnquoteUsage(f)
		switch {
		case value != "" && f.NoOptDefVal != "" && f.Value.Type() != "bool":
			name += "[=" + value + "]"
		case value != "":
			name += " " + value
		}
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "0s" && d != "[]" {
			text += "; default " + f.DefValue
		}
		if env := f.Annotations[app.EnvAnnotation]; len(env) > 0 {
			text += "; also `" + env[0] + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(name, "|", `\|`), strings.ReplaceAll(text, "|", `\|`))
	})
}

const docsHead = `# The command line

Generated from the program by ` + "`make generate`" + `. Scripts may rely on commands, flags, fields and exit codes that
stand here: fields may be added, none is renamed.

` + docsRules

// docsRules is what holds for all commands.
const docsRules = `## Rules

- Data goes to stdout, everything else to stderr.
- A flag counts before its variable ` + "`LEDGERD_…`" + `, that before the [config file](config.md), that before what the ledger has of a
  kind's policy, that before the default.
- ` + "`-o json`" + ` is one object or array at the end; ` + "`-o jsonl`" + ` one object per line as it happens; ` + "`-o csv`" + ` one row. Names
  are in snake_case, times RFC 3339 in UTC with microseconds, durations numbers ending in ` + "`_ms`, `_s`" + ` or named seconds.
  Payloads and outputs are JSON if they are JSON, else ` + "`{\"base64\":\"…\"}`" + `. Tables show local time.
- With ` + "`-o json` and `-o jsonl`" + ` an error is one object on stderr: ` + "`{\"error\":{\"code\",\"message\",\"hint\"},\"exit\":2}`" + `. Where an act
  does what the hint advises, the error has ` + "`acts`" + `, as the reasons of ` + "`show`" + ` have them.
- Durations know ` + "`d` and `w`" + `. Shards count from 0. Priority: −2 … 2, smaller first.
- Items are named by id, or by key: a path or URL as typed.

| exit | meaning |
|---|---|
| 0 | all that was asked for is so |
| 1 | error: not found, violations found, a plugin that does not start, problems that doctor found |
| 2 | usage or config: unknown kind, a mistake in the config file, missing plugin, bad flag, malformed URL, an input that does not exist |
| 3 | finished, not everything is done: dead, in doubt, waiting, held, bad lines |
| 5 | temporary, try again: database unreachable or busy, disk full |
| 9 | nothing to do or to show, with ` + "`--error-on-empty`" + ` |
| 10 | no ledger here, or its schema does not fit |
| 11 | another agent or program holds it, or works on it |
| 12 | not allowed: wrong password, read-only file or folder, checksum of a plugin differs |
| 130, 143 | interrupted, terminated |

` + "`lock run`" + ` exits as its command does.

The ledger is what ` + "`--db`" + `, ` + "`LEDGERD_DB`" + ` (` + "`LEDGERD_DB_FILE`" + ` names a file that holds the URL) or the config file names, else
` + "`$XDG_DATA_HOME/ledgerd/ledger.db`" + `. On Postgres ` + "`?search_path=NAME`" + ` in the URL names the schema. Only run, add, work, serve,
mcp --kind, db migrate, db copy and db restore make a ledger. A ledger of an older schema is refused (exit 10) by commands that only read, and by
dry runs; on SQLite the others bring it up to date, after they have written a copy beside it (see db migrate).

`

const docsTail = `
## The summary of run

` + "`ledgerd run … -o json`" + ` prints one object, which is also the last line of ` + "`-o jsonl`" + `:

` + "```json" + `
{"type":"summary","ledger":"sqlite:/home/a/.local/share/ledgerd/ledger.db","kind":"filecsv","plugin":"filecsv@0.1.0+3fa9c1",
 "added":1,"changed":1,"reopened":5,"known":207,"differs":0,
 "inputs":{"total":214,"done":209,"skipped":0,"dead":5,"doubt":0,"waiting":0,"held":0,"cancelled":0},
 "others":{"done":12,"failed":0},"emitted":{},
 "not_taken":[{"input":"x.csv.part","reason":"unfinished (.part)","wrong":false}],"bad_lines":[{"file":"-","line":7,"reason":"…"}],
 "failures":[{"code":"missing_column","message":"column \"email\" missing","count":3,"share":0.6,
   "examples":[{"id":12,"key":"/…/03.csv","error":"…"}]}],
 "failing":[],"round":null,"next_due":null,"seconds":3.1,"per_second":71.0,"exit":3}
` + "```" + `

inputs counts what the inputs are now, whoever worked them; others what this run worked besides. failures are causes of what is dead or in doubt, failing of what has failed and is tried again.
With --every, round is
{"newly_failed","recovered","counted"}: the items of the kind and scope that failed or came back in this round and not in the
one before; counted is false if two seconds were too short to count them. not_taken and bad_lines name at
most 100 each. An input that is not taken is wrong if it could not be read, or has a name that cannot be stored, or is a
pattern that matches nothing; these come first, and exit is 3.
`
