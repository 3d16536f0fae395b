package clientgen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// description is what clients are made from.
type description struct {
	types      []namedType
	operations []operation
	enums      []enum // in the order in which they are met
}

// namedType is a type of the API.
type namedType struct {
	name   string
	schema schema
	body   bool // it is a body and nothing else
}

// enum is a set of words that several fields have, with the name of these fields.
type enum struct {
	name  string
	words []string
}

// operation is one call.
type operation struct {
	ID           string      `json:"operationId"`
	Summary      string      `json:"summary"`
	Scope        string      `json:"x-scope"`
	Parameters   []parameter `json:"parameters"`
	Body         *body       `json:"requestBody"`
	Responses    map[string]body
	bodyType     string // of a body that is an object
	method, path string
	tagged       bool // it reads what may be changed under its ETag
}

type parameter struct {
	Name        string `json:"name"`
	In          string `json:"in"`
	Description string `json:"description"`
	Schema      schema `json:"schema"`
}

// body is what is sent or answered, by its media type.
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
	Event       *schema         `json:"contentSchema"` // of the data of each event
	AnyOf       []schema        `json:"anyOf"`
	Properties  ordered[schema] `json:"properties"`
	Required    []string        `json:"required"`
	Additional  json.RawMessage `json:"additionalProperties"`
}

// types are one type or several.
type types []string

func (t *types) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(t))
	}
	*t = types{""}
	return json.Unmarshal(text, &(*t)[0])
}

// ordered is an object of which the fields keep their order.
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

// read reads a description.
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
	sent := d.flattened(doc.Components.Schemas)
	for _, s := range doc.Components.Schemas {
		if s.name != "Problem" { // it is an error
			d.types = append(d.types, namedType{s.name, s.value, slices.Contains(sent, s.name)})
		}
	}
	d.nameEnums(doc.Components.Schemas)
	return d, nil
}

// nameEnums finds the sets of words that several fields have. A set of which the name is taken has none.
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

// flattened puts the fields of the bodies that are objects in place of them. It returns the names of types that are
// used in no other way.
func (d *description) flattened(all ordered[schema]) (only []string) {
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
			only = append(only, s.name)
		}
	}
	return only
}

// name is the name of a type; "" for one without.
func (s *schema) name() string { return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:] }

// names notes which types it uses.
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

// enumOf is the name of a set of words.
func (d *description) enumOf(words []string) string {
	for _, e := range d.enums {
		if slices.Equal(e.words, words) {
			return e.name
		}
	}
	return ""
}

// conditional reports whether it takes the ETag of what it changes.
func (o *operation) conditional() bool {
	return slices.ContainsFunc(o.Parameters, func(p parameter) bool { return p.Name == "If-Match" })
}

// good is the media type and the schema of a good answer.
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

// row is the schema of an entry if the answer is a list in parts.
func (o *operation) row() (schema, bool) {
	c, ok := o.Responses["200"].Content[mediaLines]
	return c.Schema, ok
}

// in are its parameters of one place: path, query or header.
func (o *operation) in(place string) (all []parameter) {
	for _, p := range o.Parameters {
		if p.In == place {
			all = append(all, p)
		}
	}
	return all
}

// fields are those of a body that is an object, the required ones first.
func (o *operation) fields() (all []field[schema], required int) {
	if o.Body == nil {
		return nil, 0
	}
	s := o.Body.Content[mediaJSON].Schema
	var rest []field[schema]
	for _, p := range s.Properties {
		if slices.Contains(s.Required, p.name) {
			all = append(all, p)
		} else {
			rest = append(rest, p)
		}
	}
	return append(all, rest...), len(all)
}

// list is the schema of an entry of a body that is a list.
func (o *operation) list() (schema, bool) {
	if o.Body == nil {
		return schema{}, false
	}
	c, ok := o.Body.Content[mediaLines]
	return c.Schema, ok
}

// pascal is a name such as RoundState for round_state.
func pascal(name string) (out string) {
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '_' || r == '-' }) {
		out += strings.ToUpper(word[:1]) + strings.ToLower(word[1:])
	}
	return out
}

// camel is a name such as lastEventId for Last-Event-ID.
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
