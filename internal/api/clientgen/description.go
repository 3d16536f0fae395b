package clientgen

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// description is the part of the API's description from which clients are made.
type description struct {
	types      []namedType
	operations []operation
	enums      []enum // in the order of their first use
}

// namedType is a type of the API.
type namedType struct {
	name   string
	schema schema
	body   bool // only request bodies use it
}

// enum is a set of words that several fields have. Its name comes from the first of these fields.
type enum struct {
	name  string
	words []string
}

// operation is one call of the API.
type operation struct {
	ID           string      `json:"operationId"`
	Summary      string      `json:"summary"`
	Scope        string      `json:"x-scope"`
	Parameters   []parameter `json:"parameters"`
	Body         *body       `json:"requestBody"`
	Responses    map[string]body
	bodyType     string // name of the body's type, if the body is an object
	method, path string // of HTTP
	tagged       bool   // it reads a resource that another operation changes with If-Match
}

type parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Description string `json:"description"`
	Schema      schema `json:"schema"`
}

// body is the body of a request or of a response, by media type.
type body struct {
	Description string `json:"description"`
	Content     map[string]struct {
		Schema schema `json:"schema"`
	} `json:"content"`
}

// schema is the part of JSON Schema that the API uses.
type schema struct {
	Type        types           `json:"type"`
	Format      string          `json:"format"`
	Ref         string          `json:"$ref"`
	Description string          `json:"description"`
	Enum        []string        `json:"enum"`
	Default     json.RawMessage `json:"default"`
	Items       *schema         `json:"items"`
	Event       *schema         `json:"contentSchema"` // schema of each event's data
	AnyOf       []schema        `json:"anyOf"`
	Properties  ordered[schema] `json:"properties"`
	Required    []string        `json:"required"`
	Additional  json.RawMessage `json:"additionalProperties"`
}

// types has one type or several. JSON Schema writes one type as a string.
type types []string

func (t *types) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(t))
	}
	*t = types{""}
	return json.Unmarshal(text, &(*t)[0])
}

// ordered is a JSON object that keeps the order of its fields.
type ordered[T any] []field[T]

type field[T any] struct {
	name  string
	value T
}

func (o *ordered[T]) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value T
		if err := d.Decode(&value); err != nil {
			return err
		}
		*o = append(*o, field[T]{fmt.Sprint(name), value})
	}
	return nil
}

const (
	mediaJSON   = "application/json"
	mediaLines  = "application/x-ndjson"
	mediaBytes  = "application/octet-stream"
	mediaEvents = "text/event-stream"
)

// read parses an OpenAPI description.
func read(text []byte) (*description, error) {
	var doc struct {
		Paths      ordered[ordered[operation]] `json:"paths"`
		Components struct {
			Schemas ordered[schema] `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	d := new(description)
	for _, path := range doc.Paths {
		conditional := slices.ContainsFunc(path.value, func(o field[operation]) bool { return o.value.conditional() })
		for _, o := range path.value {
			o.value.method, o.value.path = strings.ToUpper(o.name), path.name
			o.value.tagged = conditional && o.name == "get"
			d.operations = append(d.operations, o.value)
		}
	}
	onlySent := d.flattened(doc.Components.Schemas)
	for _, s := range doc.Components.Schemas {
		if s.name != "Problem" { // clients return it as an error
			d.types = append(d.types, namedType{s.name, s.value, slices.Contains(onlySent, s.name)})
		}
	}
	d.nameEnums(doc.Components.Schemas)
	return d, nil
}

// nameEnums finds the sets of words that several fields have. A set is left out if a type or another set has its name.
func (d *description) nameEnums(all ordered[schema]) {
	taken := map[string]bool{}
	times := map[string]int{}
	key := func(words []string) string { return strings.Join(words, "|") }
	for _, s := range all {
		taken[s.name] = true
		for _, p := range s.value.Properties {
			times[key(p.value.Enum)]++
		}
	}
	for _, s := range all {
		for _, p := range s.value.Properties {
			words, name := p.value.Enum, pascal(p.name)
			if len(words) > 0 && times[key(words)] > 1 && !taken[name] {
				taken[name] = true
				d.enums = append(d.enums, enum{name, words})
			}
		}
	}
}

// flattened replaces each JSON body that refers to a type by the schema of that type. It returns the names of the types
// that only such bodies use.
func (d *description) flattened(all ordered[schema]) (onlySent []string) {
	byName := map[string]schema{}
	used := map[string]bool{}
	for _, s := range all {
		byName[s.name] = s.value
		for _, p := range s.value.Properties {
			p.value.names(used)
		}
	}
	for i := range d.operations {
		o := &d.operations[i]
		_, s := o.good()
		s.names(used)
		if o.Body == nil {
			continue
		}
		content := o.Body.Content[mediaJSON]
		if name := content.Schema.name(); name != "" {
			content.Schema, o.bodyType = byName[name], name
			o.Body.Content[mediaJSON] = content
			continue
		}
		lines := o.Body.Content[mediaLines].Schema
		lines.names(used)
	}
	for _, s := range all {
		if !used[s.name] {
			onlySent = append(onlySent, s.name)
		}
	}
	return onlySent
}

// name is the name of the type that s refers to, or "".
func (s *schema) name() string { return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:] }

// names adds the types that s refers to.
func (s *schema) names(used map[string]bool) {
	if s.Ref != "" {
		used[s.name()] = true
	}
	if s.Items != nil {
		s.Items.names(used)
	}
	for i := range s.AnyOf {
		s.AnyOf[i].names(used)
	}
}

// enumOf is the name of a set of words, or "".
func (d *description) enumOf(words []string) string {
	for _, e := range d.enums {
		if slices.Equal(e.words, words) {
			return e.name
		}
	}
	return ""
}

// notation is how a language writes types. list and object are formats for the type of an entry.
type notation struct {
	any, null, list, object string
	enum                    func(words string) string // words are quoted, with commas
	scalars                 map[string]string         // by the type of JSON Schema, if the language has another name
}

// typeOf writes a schema as a type.
func (d *description) typeOf(n notation, s schema) string {
	if s.Ref != "" {
		return s.name()
	}
	if len(s.AnyOf) > 0 {
		return d.typeOf(n, s.AnyOf[0]) + " | " + n.null
	}
	if len(s.Enum) > 0 {
		return cmp.Or(d.enumOf(s.Enum), n.enum(quoted(s.Enum)))
	}
	if len(s.Type) == 0 || len(s.Type) > 2 {
		return n.any
	}
	var parts []string
	for _, t := range s.Type {
		switch t {
		case "null":
		case "array":
			parts = append(parts, fmt.Sprintf(n.list, d.typeOf(n, *s.Items)))
		case "object":
			value := n.any
			var inner schema
			if json.Unmarshal(s.Additional, &inner) == nil && inner.Type != nil {
				value = d.typeOf(n, inner)
			}
			parts = append(parts, fmt.Sprintf(n.object, value))
		default:
			parts = append(parts, cmp.Or(n.scalars[t], t))
		}
	}
	if slices.Contains(s.Type, "null") {
		parts = append(parts, n.null)
	}
	return strings.Join(parts, " | ")
}

// conditional reports whether the operation takes If-Match.
func (o *operation) conditional() bool {
	return slices.ContainsFunc(o.Parameters, func(p parameter) bool { return p.Name == "If-Match" })
}

// good is the media type and the schema of a successful answer.
func (o *operation) good() (string, schema) {
	content := o.Responses["200"].Content
	for _, media := range []string{mediaEvents, mediaBytes} {
		if c, ok := content[media]; ok {
			if c.Schema.Event != nil {
				c.Schema = *c.Schema.Event
			}
			return media, c.Schema
		}
	}
	return mediaJSON, content[mediaJSON].Schema
}

// row is the schema of one line, if the answer can be a list in lines.
func (o *operation) row() (schema, bool) {
	c, ok := o.Responses["200"].Content[mediaLines]
	return c.Schema, ok
}

// in returns the parameters in one place: path, query or header.
func (o *operation) in(place string) (all []parameter) {
	for _, p := range o.Parameters {
		if p.In == place {
			all = append(all, p)
		}
	}
	return all
}

// fields are the fields of a body that is an object, the required fields first. required is their number.
func (o *operation) fields() (all []field[schema], required int) {
	if o.Body == nil {
		return nil, 0
	}
	s := o.Body.Content[mediaJSON].Schema
	var optional []field[schema]
	for _, p := range s.Properties {
		if slices.Contains(s.Required, p.name) {
			all = append(all, p)
		} else {
			optional = append(optional, p)
		}
	}
	return append(all, optional...), len(all)
}

// list is the schema of one line of a body that is a list in lines.
func (o *operation) list() (schema, bool) {
	if o.Body == nil {
		return schema{}, false
	}
	c, ok := o.Body.Content[mediaLines]
	return c.Schema, ok
}

// pascal converts a name: round_state becomes RoundState.
func pascal(name string) (out string) {
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '_' || r == '-' }) {
		out += strings.ToUpper(word[:1]) + strings.ToLower(word[1:])
	}
	return out
}

// camel converts a name: Last-Event-ID becomes lastEventId.
func camel(name string) string {
	p := pascal(name)
	return strings.ToLower(p[:1]) + p[1:]
}

// sentence is the documentation of an operation.
func (o *operation) sentence() string {
	need := "no token"
	if o.Scope != "" {
		need = "scope " + o.Scope
	}
	return fmt.Sprintf("%s. Needs %s.", o.Summary, need)
}
