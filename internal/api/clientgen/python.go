package clientgen

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// python writes types as TypedDict and calls as methods.
type python struct{}

// typeText defines a type. Optional fields have a class of their own, because NotRequired is newer than Python 3.9.
func (w python) typeText(d *description, t namedType) string {
	var b strings.Builder
	if t.name == d.types[0].name {
		for _, e := range d.enums {
			fmt.Fprintf(&b, "%s = Literal[%s]\n", e.name, quoted(e.words))
		}
		b.WriteString("\n")
	}
	if t.body {
		return b.String() // its fields are parameters
	}
	var must, may []string
	for _, p := range t.schema.Properties {
		line := fmt.Sprintf("    %s: %s", p.name, d.typeOf(pyTypes, p.value))
		if p.value.Description != "" {
			line += "  # " + p.value.Description
		}
		if slices.Contains(t.schema.Required, p.name) {
			must = append(must, line)
		} else {
			may = append(may, line)
		}
	}
	switch {
	case len(may) == 0:
		fmt.Fprintf(&b, "\nclass %s(TypedDict):\n%s\n", t.name, strings.Join(must, "\n"))
	case len(must) == 0:
		fmt.Fprintf(&b, "\nclass %s(TypedDict, total=False):\n%s\n", t.name, strings.Join(may, "\n"))
	default:
		fmt.Fprintf(&b, "\nclass _%s(TypedDict):\n%s\n\n\nclass %s(_%s, total=False):\n%s\n", t.name,
			strings.Join(must, "\n"), t.name, t.name, strings.Join(may, "\n"))
	}
	return b.String()
}

var pyTypes = notation{
	any: "Any", null: "None", list: "List[%s]", object: "Dict[str, %s]",
	enum:    func(words string) string { return "Literal[" + words + "]" },
	scalars: map[string]string{"string": "str", "integer": "int", "number": "float", "boolean": "bool"},
}

// quoted returns words as string literals of Python and TypeScript, with commas between them.
func quoted(words []string) string {
	var all []string
	for _, word := range words {
		all = append(all, fmt.Sprintf("%q", word))
	}
	return strings.Join(all, ", ")
}

// method returns the method for a call. A list that comes in parts has a second method that goes through all parts.
func (w python) method(d *description, o operation) string {
	media, good := o.good()
	name := snake(o.ID)
	var b strings.Builder
	result := d.typeOf(pyTypes, good)
	switch media {
	case mediaBytes:
		result = "bytes"
	case mediaEvents:
		result = "Iterator[Event]"
	}
	w.def(&b, d, o, name, result, nil, o.sentence())
	if media == mediaEvents {
		fmt.Fprintf(&b, "        return self._events(%s, %s, %s)\n", w.path(o), w.query(o, nil), snake(o.in("header")[0].Name))
		return b.String()
	}
	if o.conditional() {
		fmt.Fprintf(&b, "        if_match = self._tag(%s) if if_match is None else if_match\n", w.path(o))
	}
	fmt.Fprintf(&b, "        answer: %s = self._call(%q, %s%s)\n        return answer\n", result, o.method, w.path(o),
		w.arguments(o, media))
	if row, ok := o.row(); ok {
		b.WriteString("\n")
		skip := []string{"cursor"}
		w.def(&b, d, o, "iter_"+strings.TrimPrefix(name, "list_"), "Iterator["+d.typeOf(pyTypes, row)+"]", skip,
			o.Summary+", part after part.")
		fmt.Fprintf(&b, "        return self._parts(%s, %s)\n", w.path(o), w.query(o, skip))
	}
	return b.String()
}

// def writes the signature of a method and its docstring.
func (w python) def(b *strings.Builder, d *description, o operation, name, result string, skip []string, text string) {
	args, docs := []string{"self"}, []string{}
	note := func(name, doc string) {
		if doc != "" {
			docs = append(docs, fmt.Sprintf("        %s: %s", name, doc))
		}
	}
	for _, p := range o.in("path") {
		args = append(args, pyName(p.Name)+": "+d.typeOf(pyTypes, p.Schema))
		note(pyName(p.Name), p.Description)
	}
	if row, ok := o.list(); ok {
		args = append(args, "rows: Iterable["+d.typeOf(pyTypes, row)+"]")
		note("rows", o.Body.Description)
	}
	star := false
	optional := func(name string, s schema, doc string) {
		if !star {
			args, star = append(args, "*"), true
		}
		args = append(args, fmt.Sprintf("%s: %s | None = None", name, strings.TrimSuffix(d.typeOf(pyTypes, s), " | None")))
		note(name, doc)
	}
	fields, required := o.fields()
	for i, f := range fields {
		if i < required {
			if !star {
				args, star = append(args, "*"), true
			}
			args = append(args, pyName(f.name)+": "+d.typeOf(pyTypes, f.value))
			note(pyName(f.name), f.value.Description)
		} else {
			optional(pyName(f.name), f.value, f.value.Description)
		}
	}
	for _, p := range slices.Concat(o.in("query"), o.in("header")) {
		if !slices.Contains(skip, p.Name) {
			doc := p.Description
			if p.Name == "If-Match" {
				doc += "; if it is not given, the ETag of the last read with this client"
			}
			optional(pyName(snake(p.Name)), p.Schema, doc)
		}
	}
	fmt.Fprintf(b, "    def %s(%s) -> %s:\n        \"\"\"%s", name, strings.Join(args, ", "), result, text)
	if len(docs) > 0 {
		fmt.Fprintf(b, "\n\n%s\n        ", strings.Join(docs, "\n"))
	}
	b.WriteString("\"\"\"\n")
}

var inPath = regexp.MustCompile(`\{(\w+)\}`)

// path returns the expression for the path of a call.
func (w python) path(o operation) string {
	if !strings.Contains(o.path, "{") {
		return fmt.Sprintf("%q", o.path)
	}
	return `f"` + inPath.ReplaceAllStringFunc(o.path, func(m string) string {
		return "{_segment(" + pyName(m[1:len(m)-1]) + ")}"
	}) + `"`
}

// query returns the dict of the query parameters.
func (w python) query(o operation, skip []string) string {
	var pairs []string
	for _, p := range o.in("query") {
		if !slices.Contains(skip, p.Name) {
			pairs = append(pairs, fmt.Sprintf("%q: %s", p.Name, pyName(p.Name)))
		}
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// arguments returns the arguments of _call that follow the path.
func (w python) arguments(o operation, media string) (text string) {
	if len(o.in("query")) > 0 {
		text += ", " + w.query(o, nil)
	}
	if fields, _ := o.fields(); len(fields) > 0 {
		var pairs []string
		for _, f := range fields {
			pairs = append(pairs, fmt.Sprintf("%q: %s", f.name, pyName(f.name)))
		}
		text += ", body={" + strings.Join(pairs, ", ") + "}"
	}
	if _, ok := o.list(); ok {
		text += ", body=rows"
	}
	if h := o.in("header"); len(h) > 0 {
		text += fmt.Sprintf(", headers={%q: %s}", h[0].Name, snake(h[0].Name))
	}
	if media == mediaBytes {
		text += ", raw=True"
	}
	if o.tagged {
		text += ", tagged=True"
	}
	return text
}

var hump = regexp.MustCompile(`([a-z])([A-Z])`)

// snake converts a name to snake case: list_items for listItems.
func snake(name string) string {
	return strings.ToLower(strings.ReplaceAll(hump.ReplaceAllString(name, "${1}_$2"), "-", "_"))
}

// pyName adds an underscore to a name that is a keyword of Python.
func pyName(name string) string {
	if slices.Contains([]string{"from", "in", "is", "not", "class", "import", "global", "with", "as"}, name) {
		return name + "_"
	}
	return name
}
