package input

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// ShowFields lists the fields that --set and --with take.
func ShowFields(to io.Writer, a *app.App, p *kinds.Plugin) error {
	out := a.Printer().To(to)
	for _, part := range []struct {
		title, flag string
		schema      *settings.Schema
	}{{"Payload, what is to be done", "--set", p.Payload}, {"Config, what this machine allows and has", "--with",
		p.Config}} {
		rows := [][]string{}
		for _, f := range part.schema.Fields() {
			if in := p.Policy(p.Name).Input; part.flag == "--set" && slices.Contains([]string{in.Field, in.Modified, in.Owner},
				f.Name) {
				continue // INPUT fills it
			}
			rows = append(rows, fieldRow(part.flag, f))
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(to, "\n%s:\n", part.title)
		if err := out.Align("  ", rows); err != nil {
			return err
		}
	}
	return nil
}

func fieldRow(flag string, f settings.Field) []string {
	kind := f.Type
	if len(f.Enum) > 0 {
		kind = strings.Join(f.Enum, "|")
	}
	text := f.Doc
	if f.Tune {
		text += " (tunes)"
	}
	switch {
	case f.Secret:
		text += " (secret)"
	case f.Required:
		text += " (required)"
	case f.Default != "" && f.Default != `""` && f.Default != "[]" && f.Default != "{}":
		text += fmt.Sprintf(" (default %s)", strings.Trim(f.Default, `"`))
	}
	return []string{flag + " " + f.Name + "=…", kind, text}
}
