package config

import (
	_ "embed"
	"fmt"
	"reflect"
	"strings"
	"text/template"
)

// Example is a config file to begin with. It sets keys to their defaults, or in comments.
//
//go:embed example.toml
var Example string

//go:embed reference.md.tmpl
var referenceText string

// Reference returns docs/config.md.
func Reference() string {
	var b strings.Builder
	t := template.Must(template.New("").Funcs(template.FuncMap{"table": referenceTable,
		"example": func() string { return Example }}).Parse(referenceText))
	if err := t.Execute(&b, nil); err != nil {
		panic(err) // a mistake in the template
	}
	return b.String()
}

// referenceTable returns the Markdown table of the keys with this prefix.
func referenceTable(prefix string) string {
	of := map[string]reflect.Type{"": reflect.TypeFor[Config](), "kinds.NAME.": reflect.TypeFor[Kind](),
		"source": reflect.TypeFor[Source](), "plugins.NAME.": reflect.TypeFor[Plugin](),
		"api.": reflect.TypeFor[API](), "api.tokens.NAME.": reflect.TypeFor[Token](), "ui.": reflect.TypeFor[UI]()}[prefix]
	var b strings.Builder
	named := prefix == "" || prefix == "api." || prefix == "ui."
	b.WriteString("| key | value | default | what it is | reload |")
	rule := "\n|---|---|---|---|---|"
	if named {
		b.WriteString(" variable |")
		rule += "---|"
	}
	b.WriteString(rule + "\n")
	for _, k := range keys(of) {
		if k.tableType() != nil {
			continue
		}
		variable, reload := "", "restart"
		if named && (k.scalar() != nil || k.typ == stringsType) {
			variable = " `" + EnvName(prefix+k.name) + "` |"
		} else if named {
			variable = "  |"
		}
		if k.live || prefix == "source" || prefix == "api.tokens.NAME." { // as in Diff
			reload = "live"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |%s\n", k.name, cell(k.values()), cell(k.byDefault()), cell(k.doc),
			reload, variable)
	}
	return b.String()
}

// cell escapes text for a Markdown table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// values names the values that a key accepts.
func (k key) values() string {
	name, _ := k.form()
	name = strings.TrimPrefix(name, "a ")
	switch {
	case k.oneOf != nil:
		return strings.Join(k.oneOf, " | ")
	case k.most != "":
		return name + ", " + k.span()
	case k.isPath && k.typ == stringsType:
		return "list of paths"
	case k.isPath:
		return "path"
	}
	return name
}

func (k key) byDefault() string {
	if k.def == "" {
		return ""
	}
	return "`" + k.def + "`"
}
