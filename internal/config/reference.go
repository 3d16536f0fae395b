package config

import (
	_ "embed"
	"fmt"
	"reflect"
	"strings"
)

// Example is a config file to begin with: what it sets is set to the default or commented out.
//
//go:embed example.toml
var Example string

// Reference is docs/config.md.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, t := range []struct {
		title, prefix string
		of            reflect.Type
	}{
		{"At the top", "", reflect.TypeFor[Config]()},
		{"[kinds.NAME]", "kinds.NAME.", reflect.TypeFor[Kind]()},
		{"[[source]]", "-", reflect.TypeFor[Source]()},
		{"[plugins.NAME]", "plugins.NAME.", reflect.TypeFor[Plugin]()},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s", t.title, referenceText[t.title])
		b.WriteString("| key | value | default | what it is | reload | variable |\n|---|---|---|---|---|---|\n")
		for _, k := range keys(t.of) {
			if k.below() != nil {
				continue
			}
			variable := ""
			if t.prefix != "-" && (k.scalar() != nil || t.prefix == "" && k.typ == stringsType) {
				variable = "`" + EnvName(t.prefix+k.name) + "`"
			}
			reload := "restart"
			if k.live || t.prefix == "-" {
				reload = "live"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", k.name, cell(k.values()), cell(k.byDefault()), cell(k.doc), reload, variable)
		}
	}
	b.WriteString("\n## An example\n\n`ledgerd config init` writes it.\n\n```toml\n" + Example + "```\n")
	return b.String()
}

// cell is text in a table of Markdown.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// values says what a key takes.
func (k key) values() string {
	switch {
	case k.oneOf != nil:
		return strings.Join(k.oneOf, " | ")
	case k.top != "":
		return k.typeName() + ", " + k.span()
	case k.isPath && k.typ == stringsType:
		return "list of paths"
	case k.isPath:
		return "path"
	}
	return k.typeName()
}

func (k key) byDefault() string {
	if k.def == "" {
		return ""
	}
	return "`" + k.def + "`"
}

const referenceHead = `# The config file

Generated from the program by ` + "`make generate`" + `. ledgerd needs no config file; with one, a machine that runs ` + "`ledgerd serve`" + ` says
in one place what it works and where items come from.

- The file is TOML. It is the one that ` + "`--config`" + ` names, else ` + "`LEDGERD_CONFIG`" + `, else the first that exists of
  ` + "`$XDG_CONFIG_HOME/ledgerd/ledgerd.toml`" + ` (` + "`~/.config`" + ` without the variable) and ` + "`/etc/ledgerd/ledgerd.toml`" + `. Only one is read; the line on
  stderr that names the ledger names it as well.
- What counts, first to last: a flag, a variable ` + "`LEDGERD_…`" + `, the config file, for the policy of a kind what the ledger has, the
  plugin's own default, the built-in default. An empty variable counts as none.
- The file is read strictly: what is unknown, misspelt, of the wrong type or out of range is refused, every mistake at once, each with
  its line. ` + "`ledgerd config check`" + ` does so without doing anything else; it also asks the plugins about their tables.
- ` + "`ledgerd config print`" + ` shows what is effective and where each value is from; ` + "`ledgerd config init`" + ` writes a file to begin with.
- SIGHUP makes ` + "`ledgerd serve`" + ` read the file again. One that is wrong is refused as a whole and the old one stays. What the tables call
  live is taken over by the running daemon, and so are kinds and sources that come or go; the rest is said and waits for a restart.
- Durations: ` + "`\"90s\"`, `\"1h30m\"`, `\"7d\"`, `\"2w\"`" + `. Rates: ` + "`\"100/s\"`, `\"30/m\"`, `\"5/10s\"`" + `. Sizes: ` + "`\"512MiB\"`, `\"2GB\"`" + `. Paths, also of ` + "`sqlite:`" + `, are relative to the folder of
  the file; ` + "`~/`" + ` is the home directory.
- Secrets are better in files of their own: ` + "`db_file`" + ` for the URL of the ledger; for a secret NAME of a plugin ` + "`NAME = \"file:PATH\"`" + ` or
  ` + "`NAME_file = \"PATH\"`" + ` in its table. Variables have ` + "`…_FILE`" + ` for the same. Secrets are never printed; a file that holds one and that
  everybody can read is warned about.
- There is a variable for each key that holds one value and is not in an array of tables, and for ` + "`plugin_dir`" + ` (with commas). In names
  of kinds and plugins ` + "`-` becomes `_`" + `. Fields of a plugin: ` + "`LEDGERD_KINDS_NAME_SET_FIELD`, `LEDGERD_KINDS_NAME_WITH_FIELD`" + `.
`

var referenceText = map[string]string{
	"[kinds.NAME]": `How a kind is worked on this machine (plugin, concurrency, with), how it is treated on all of them (from timeout to burst: the policy,
which is written to the ledger by the commands that work or add to the kind), and what items get that are added here (every, zone,
priority, set). A policy that is not given here stays as the ledger has it. One that is given here replaces what ` + "`ledgerd kind set`" + ` has set, and the
command or the log says so: ` + "`run` and `add`" + ` each time, ` + "`work` and `serve`" + ` when they start to work the kind. With SIGHUP a daemon writes only what the
file says otherwise than when it was read last. ` + "`config check` and `doctor`" + ` name what the ledger has otherwise.

`,
	"[[source]]": `Where items come from; each ` + "`[[source]]`" + ` is one more. ` + "`ledgerd serve`" + ` looks at them by their schedule.

`,
	"[plugins.NAME]": `How a plugin is started, where that is not simply the program ` + "`ledgerd-plugin-NAME`" + `.

`,
}
