package sdk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Reference is the plugin's documentation in Markdown, made from its description: the output of the command doc.
func Reference(p *Plugin) (string, error) {
	d, err := p.describe()
	if err != nil {
		return "", err
	}
	return reference(p, d), nil
}

func reference(p *Plugin, d *wire.DescribeResponse) string {
	config, input, output := p.run.shapes()
	var b strings.Builder
	fmt.Fprintf(&b, "# %s %s\n\n", d.Name, d.Version)
	if d.Doc != "" {
		fmt.Fprintf(&b, "%s\n\n", strings.TrimSpace(d.Doc))
	}
	if d.Input != nil {
		kind := d.Input.Type
		if kind == "url" {
			kind = "URL"
		}
		fmt.Fprintf(&b, "INPUT is a %s and becomes the payload's `%s`.", kind, d.Input.Field)
		if len(d.Match) > 0 {
			fmt.Fprintf(&b, " Of a folder it takes `%s`.", strings.Join(d.Match, "` `"))
		}
		for _, f := range []struct{ field, takes string }{{d.Input.Modified, "when it was last changed"},
			{d.Input.Owner, "whose it is"}} {
			if f.field != "" {
				fmt.Fprintf(&b, " `%s` takes %s.", f.field, f.takes)
			}
		}
		b.WriteString("\n\n")
	}
	table(&b, "Payload (`--set`)", input.schema.Fields(), true)
	table(&b, "Config (`--with`)", config.schema.Fields(), true)
	if slices.ContainsFunc(config.schema.Fields(), func(f settings.Field) bool { return f.Tune }) {
		b.WriteString("Processes that work a kind at the same time need not agree on fields that only tune, nor on " +
			"secrets; on all others they must.\n\n")
	}
	table(&b, "Output", output.schema.Described(), false)
	if len(d.Emits) > 0 {
		fmt.Fprintf(&b, "Emits items of the kinds `%s`.\n\n", strings.Join(d.Emits, "` `"))
	}
	if d.TimeoutMs > 0 {
		fmt.Fprintf(&b, "An attempt may take %v.\n\n", time.Duration(d.TimeoutMs)*time.Millisecond)
	}
	if d.MaxFailures > 0 {
		fmt.Fprintf(&b, "After %d failed attempts an item is dead.\n\n", d.MaxFailures)
	}
	if d.OnLost == wire.OnLost_ON_LOST_DOUBT {
		b.WriteString("An attempt that ended without a report is in doubt: a person decides.\n\n")
	}
	for _, e := range d.Examples {
		fmt.Fprintf(&b, "## Example%s\n\n```json\n%s\n```\n", strings.TrimRight(": "+e.Doc, ": "), e.Payload)
		if len(e.Output) > 0 {
			fmt.Fprintf(&b, "\ngives\n\n```json\n%s\n```\n", e.Output)
		}
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// table lists fields; settings have defaults, an output has none.
func table(b *strings.Builder, title string, fields []settings.Field, defaults bool) {
	if len(fields) == 0 {
		return
	}
	fmt.Fprintf(b, "## %s\n\n", title)
	if defaults {
		b.WriteString("| field | type | default | |\n|---|---|---|---|\n")
	} else {
		b.WriteString("| field | type | |\n|---|---|---|\n")
	}
	for _, f := range fields {
		kind := f.Type
		if len(f.Enum) > 0 {
			kind = "`" + cell(strings.Join(f.Enum, "` `")) + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | ", f.Name, kind)
		if defaults {
			fmt.Fprintf(b, "%s | ", defaultOf(f))
		}
		text := f.Doc
		if f.Tune {
			text += " (tunes)"
		}
		if f.Single {
			text += " (about one input)"
		}
		fmt.Fprintf(b, "%s |\n", cell(text))
	}
	b.WriteString("\n")
}

// cell escapes what would end a cell of a table or its row.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\r", "", "\n", " ").Replace(text)
}

func defaultOf(f settings.Field) string {
	switch {
	case f.Secret:
		return "secret"
	case f.Required:
		return "required"
	case f.Default != "":
		return "`" + cell(f.Default) + "`"
	default:
		return ""
	}
}
