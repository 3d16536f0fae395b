package api

import (
	_ "embed"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
)

//go:embed reference.md.tmpl
var referenceText string

// Reference is docs/api.md.
func Reference() string {
	var b strings.Builder
	t := template.Must(template.New("").Funcs(template.FuncMap{"routes": routesText, "answers": answersText,
		"codes": codesText, "scopes": scopesText}).Parse(referenceText))
	if err := t.Execute(&b, nil); err != nil {
		panic(err) // a mistake in the template
	}
	return b.String()
}

// routesText describes each route.
func routesText() string {
	var b strings.Builder
	for _, r := range described() {
		scope := "no token"
		if r.Scope != "" {
			scope = "scope `" + string(r.Scope) + "`"
		}
		if r.AllKinds {
			scope += ", a token for all kinds"
		}
		fmt.Fprintf(&b, "### %s %s\n\n%s. Needs %s.%s\n\n", r.Method, r.Path, r.Summary, scope, answerText(&r))
		params := slices.DeleteFunc(parameters(r.in), func(p parameter) bool { return p.in == "path" })
		if len(params) > 0 {
			b.WriteString("| parameter | value | default | what it is |\n|---|---|---|---|\n")
		}
		for _, p := range params {
			name := "`" + p.name + "`"
			switch p.in {
			case "body":
				name = "the body"
			case "header":
				name = "header " + name
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, cell(p.values()), p.def, cell(p.doc))
		}
		if len(params) > 0 {
			b.WriteString("\n")
		}
	}
	return b.String()
}

func answerText(r *Route) string {
	text := ""
	if named(r.out) && !r.out.Implements(reflect.TypeFor[selfWriter]()) {
		text = fmt.Sprintf(" Answers `%s`.", typeName(r.out))
	}
	if len(r.Codes) > 0 {
		var links []string
		for _, name := range r.Codes {
			links = append(links, fmt.Sprintf("[`%s`](#%s)", name, name))
		}
		text += " Errors of its own: " + strings.Join(links, ", ") + "."
	}
	return text
}

// cell is text in a table of Markdown.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// values describes what a parameter takes.
func (p parameter) values() string {
	switch {
	case p.oneOf != nil:
		return strings.Join(p.oneOf, ", ")
	case p.top > 0:
		return fmt.Sprintf("%d … %d", p.low, p.top)
	case p.in == "body":
		if p.typ.Kind() == reflect.Slice {
			return "list of `" + typeName(p.typ.Elem()) + "`"
		}
		return "`" + typeName(p.typ) + "`"
	case p.typ.Kind() == reflect.Bool:
		return "true, false"
	case p.typ.Kind() == reflect.Int64:
		return "number"
	}
	return "text"
}

// answersText lists the fields of all types.
func answersText() string {
	all := newSchemas()
	for _, r := range described() {
		if !r.out.Implements(reflect.TypeFor[selfWriter]()) {
			all.of(r.out)
		}
		for _, p := range parameters(r.in) {
			if p.in == "body" {
				all.of(p.typ)
			}
		}
	}
	all.of(reflect.TypeFor[answer.Problem]())
	var b strings.Builder
	b.WriteString("| type | fields |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all.made)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, strings.Join(all.made[name].PropertyOrder, ", "))
	}
	b.WriteString("\n" + wordsText(all))
	return b.String()
}

// wordsText lists the words that fields may have, with the types of these fields.
func wordsText(all *schemas) string {
	rows := map[string][]string{} // field and words → types
	for _, name := range slices.Sorted(maps.Keys(all.made)) {
		for _, field := range all.made[name].PropertyOrder {
			if enum := all.made[name].Properties[field].Enum; enum != nil {
				var words []string
				for _, word := range enum {
					words = append(words, strings.ReplaceAll(fmt.Sprintf("`%s`", word), "``", "empty"))
				}
				row := fmt.Sprintf("| `%s` | %s |", field, strings.Join(words, ", "))
				rows[row] = append(rows[row], "`"+name+"`")
			}
		}
	}
	var b strings.Builder
	b.WriteString("Fields with certain words:\n\n| field | words | of |\n|---|---|---|\n")
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "%s %s |\n", row, strings.Join(rows[row], ", "))
	}
	return b.String()
}

// codesText describes each code of an error; a heading of its own is its place.
func codesText() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "### %s\n\n%d. %s.\n\n", name, codes[name].status, codes[name].title)
	}
	return strings.TrimSpace(b.String()) + "\n"
}

func scopesText() string {
	var b strings.Builder
	b.WriteString("| scope | what it allows |\n|---|---|\n")
	for _, s := range access.Scopes {
		fmt.Fprintf(&b, "| `%s` | %s |\n", s, s.Allows())
	}
	return b.String()
}
