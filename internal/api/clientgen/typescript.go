package clientgen

import (
	"fmt"
	"slices"
	"strings"
)

// typeScript writes types as interfaces and calls as declarations.
type typeScript struct{}

func (w typeScript) typeText(d *description, t namedType) string {
	var b strings.Builder
	if t.name == d.types[0].name {
		for _, e := range d.enums {
			fmt.Fprintf(&b, "export type %s = %s;\n", e.name, strings.ReplaceAll(quoted(e.words), ", ", " | "))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "export interface %s {\n", t.name)
	for _, p := range t.schema.Properties {
		if p.value.Description != "" {
			fmt.Fprintf(&b, "  /** %s */\n", p.value.Description)
		}
		mark := "?"
		if slices.Contains(t.schema.Required, p.name) {
			mark = ""
		}
		fmt.Fprintf(&b, "  %s%s: %s;\n", p.name, mark, d.typeOf(tsTypes, p.value))
	}
	b.WriteString("}\n")
	return b.String()
}

var tsTypes = notation{
	any: "any", null: "null", list: "%s[]", object: "Record<string, %s>",
	enum:    func(words string) string { return strings.ReplaceAll(words, ", ", " | ") },
	scalars: map[string]string{"integer": "number"},
}

func (w typeScript) method(d *description, o operation) string {
	media, good := o.good()
	result := "Promise<" + d.typeOf(tsTypes, good) + ">"
	switch media {
	case mediaBytes:
		result = "Promise<Uint8Array>"
	case mediaEvents:
		result = "AsyncGenerator<Event, void, void>"
	}
	text := w.declaration(d, o, o.ID, result, nil, o.sentence())
	if row, ok := o.row(); ok {
		text += w.declaration(d, o, iterName(o), "AsyncGenerator<"+d.typeOf(tsTypes, row)+", void, void>", []string{"cursor"},
			o.Summary+", part after part.")
	}
	return text
}

// declaration is the declaration of a method with its documentation. skip names parameters that it does not have.
func (w typeScript) declaration(d *description, o operation, name, result string, skip []string, text string) string {
	var args, docs, options []string
	for _, p := range o.in("path") {
		args = append(args, p.Name+": "+d.typeOf(tsTypes, p.Schema))
		docs = append(docs, p.Name+" "+p.Description)
	}
	if row, ok := o.list(); ok {
		args = append(args, "rows: "+d.typeOf(tsTypes, row)+"[]")
		docs = append(docs, "rows "+o.Body.Description)
	} else if o.Body != nil {
		args = append(args, "body: "+o.bodyType)
		docs = append(docs, "body "+o.Body.Description)
	}
	for _, p := range slices.Concat(o.in("query"), o.in("header")) {
		if slices.Contains(skip, p.Name) {
			continue
		}
		key, note := optionName(p), p.Description
		if p.Name == "If-Match" {
			note += "; that of the last read with this client if it is not given"
		}
		options = append(options, fmt.Sprintf("%s?: %s", key, d.typeOf(tsTypes, p.Schema)))
		docs = append(docs, "options."+key+" "+note)
	}
	kind := "Call"
	if len(options) > 0 {
		kind += " & { " + strings.Join(options, "; ") + " }"
	}
	args = append(args, "options?: "+kind)
	var b strings.Builder
	fmt.Fprintf(&b, "  /**\n   * %s\n", text)
	for _, doc := range docs {
		fmt.Fprintf(&b, "   * @param %s\n", doc)
	}
	fmt.Fprintf(&b, "   */\n  %s(%s): %s;\n", name, strings.Join(args, ", "), result)
	return b.String()
}

// iterName is the name of the method that goes through all parts of a list: iterItems for listItems.
func iterName(o operation) string { return "iter" + strings.TrimPrefix(o.ID, "list") }

// optionName is the name of the option for a parameter of the query or the header.
func optionName(p parameter) string {
	if p.In == "header" {
		return camel(p.Name)
	}
	return p.Name
}

// javaScript writes calls as methods, and no types.
type javaScript struct{}

func (javaScript) typeText(*description, namedType) string { return "" }

func (w javaScript) method(_ *description, o operation) string {
	media, _ := o.good()
	var args []string
	for _, p := range o.in("path") {
		args = append(args, p.Name)
	}
	request := []string{"signal"}
	if _, ok := o.list(); ok {
		args = append(args, "rows")
		request = append(request, "body: rows")
	} else if o.Body != nil {
		args = append(args, "body")
		request = append(request, "body")
	}
	if q := w.options(o, nil, "query"); q != "" {
		request = append(request, "query: { "+q+" }")
	}
	for _, p := range o.in("header") {
		value := camel(p.Name)
		if p.Name == "If-Match" {
			value += " ?? this.#tag(" + w.path(o) + ")"
		}
		request = append(request, fmt.Sprintf("headers: { %q: %s }", p.Name, value))
	}
	if media == mediaBytes {
		request = append(request, `raw: true, accept: "*/*"`)
	}
	if o.tagged {
		request = append(request, "tagged: true")
	}
	if media == mediaEvents {
		return fmt.Sprintf("  %s(%s) {\n    return this.#events(%s, { %s }, %s, signal);\n  }\n", o.ID, w.args(o, args, nil),
			w.path(o), w.options(o, nil, "query"), camel(o.in("header")[0].Name))
	}
	async := ""
	if o.conditional() {
		async = "async " // so that it rejects and does not throw
	}
	text := fmt.Sprintf("  %s%s(%s) {\n    return this.#call(%q, %s, { %s });\n  }\n", async, o.ID, w.args(o, args, nil),
		o.method, w.path(o), strings.Join(request, ", "))
	if _, ok := o.row(); ok {
		skip := []string{"cursor"}
		text += fmt.Sprintf("\n  %s(%s) {\n    return this.#parts(%s, { %s }, signal);\n  }\n", iterName(o),
			w.args(o, args, skip), w.path(o), w.options(o, skip, "query"))
	}
	return text
}

// args are the parameters of a method: args, then an object of options.
func (w javaScript) args(o operation, args, skip []string) string {
	names := []string{w.options(o, skip, "query"), w.options(o, skip, "header"), "signal"}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	return strings.Join(append(slices.Clone(args), "{ "+strings.Join(names, ", ")+" } = {}"), ", ")
}

// options are the names of the options for the parameters in a place, with commas.
func (javaScript) options(o operation, skip []string, place string) string {
	var names []string
	for _, p := range o.in(place) {
		if !slices.Contains(skip, p.Name) {
			names = append(names, optionName(p))
		}
	}
	return strings.Join(names, ", ")
}

// path is the path of a call, with its parameters.
func (javaScript) path(o operation) string {
	if !strings.Contains(o.path, "{") {
		return fmt.Sprintf("%q", o.path)
	}
	return "`" + inPath.ReplaceAllString(o.path, "$${encodeURIComponent($1)}") + "`"
}
