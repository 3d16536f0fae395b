// Package settings turns what people write into JSON that fits a schema, and names the field that
// is wrong if it does not. It reads the payload of an item (--set) and the config of a plugin
// (--with). The schema is the plugin's own, so the command line, the daemon and the plugin report
// the same mistake alike.
//
// Schemas are JSON Schema, draft 2020-12. Package sdk derives them from structs. Three things in them are ours: the
// format "go-duration" (a string such as "30s" or "7d"); writeOnly for a secret, so that its value appears in no
// message; and the keywords [Tune] and [Single].
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Duration is the format of strings that ParseDuration reads.
const Duration = "go-duration"

// Tune is the keyword of properties that decide how the work goes (how many at a time, how long, how
// large), and never what a result means. Processes that work together need not agree on them.
const Tune = "x-ledgerd-tune"

// Single is the keyword of properties of a payload that are about one input, such as its encoding, and not
// about all work of a kind: a kind does not remember them.
const Single = "x-ledgerd-single"

// Schema is a JSON Schema of an object, ready for use. It may be used from many goroutines.
type Schema struct {
	root     *jsonschema.Schema
	resolved *jsonschema.Resolved
	rule     *rule               // accepts most values at little cost
	ruled    bool                // rule is that of the schema; nil accepts all values
	order    map[string][]string // names of an object's properties as written, by its path
	filling  *filling
	marked   int // schemas with writeOnly, also in places that Secrets does not list
}

// Compile reads a schema.
func Compile(schema []byte) (*Schema, error) {
	s := &Schema{root: new(jsonschema.Schema), order: map[string][]string{}}
	if err := json.Unmarshal(schema, s.root); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	var err error
	if s.marked, err = checkReferences(schema); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if s.resolved, err = s.root.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true}); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if err := s.readOrder(schema, ""); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	if s.filling, err = newFilling("", s.root); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	s.rule, s.ruled = compileRule(s.root)
	return s, nil
}

// String is the schema as JSON: two schemas with the same text accept the same values.
func (s *Schema) String() string {
	text, _ := json.Marshal(s.root) // it was read from JSON
	return string(text)
}

// Problem is one field that is wrong.
type Problem struct {
	Field      string // dots for nesting; "" is the whole
	Message    string // "must be one of a, b"
	Hint       string // what to do, or what may have been meant; may be empty
	Unknown    bool   // there is no such field
	Missing    bool   // it is required and not there
	Suggestion string // with Unknown: the field that may have been meant
}

// Error lists everything that is wrong.
type Error struct{ Problems []Problem }

// Error is one line: "delimiter: must not be empty; rows: must be at least 1".
func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// String is "field: message; hint".
func (p Problem) String() string {
	text := p.Message
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Hint != "" {
		text += "; " + p.Hint
	}
	return text
}

func problem(field, format string, args ...any) *Error {
	return &Error{[]Problem{{Field: field, Message: fmt.Sprintf(format, args...)}}}
}

// Validate checks a value; the error is an *Error. Empty input is the empty object.
func (s *Schema) Validate(value []byte) error {
	if len(value) == 0 {
		value = []byte("{}")
	}
	if s.ruled && json.Valid(value) && s.rule.fits(bytes.TrimSpace(value)) {
		return nil
	}
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return problem("", "not JSON: %v", err)
	}
	if s.resolved.Validate(v) == nil {
		_, err := s.Fill(value) // it refuses durations that are too long
		return err
	}
	x := explainer{}
	x.value("", s.root, v)
	if len(x.problems) == 0 { // the schema has a keyword that package sdk does not write
		return problem("", "does not fit the schema")
	}
	return &Error{x.problems}
}

// Marshal writes a Go value as settings; nil is the empty object. A struct cannot mark a field as
// absent, so in structs zero fields stand for absent ones, unless they are required.
func (s *Schema) Marshal(v any) ([]byte, error) {
	if v == nil {
		return []byte("{}"), nil
	}
	raw, err := json.Marshal(v)
	if err != nil || reflect.Indirect(reflect.ValueOf(v)).Kind() != reflect.Struct {
		return raw, err
	}
	return dropZero(s.root, raw)
}

func dropZero(at *jsonschema.Schema, value []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if len(at.Properties) == 0 || json.Unmarshal(value, &fields) != nil {
		return value, nil // not an object: nothing to leave out
	}
	for name, field := range at.Properties {
		raw, given := fields[name]
		switch {
		case !given || slices.Contains(at.Required, name):
		case string(raw) == "null", // the zero value of a pointer; a pointer to 0 is not zero
			!slices.Contains(field.Types, "null") && slices.Contains([]string{"0", `""`, "false"}, string(raw)):
			delete(fields, name)
		default:
			inner, err := dropZero(field, raw)
			if err != nil {
				return nil, err
			}
			if fields[name] = inner; string(inner) == "{}" {
				delete(fields, name)
			}
		}
	}
	return json.Marshal(fields)
}

// Field describes one field to people.
type Field struct {
	Name     string // dots for nesting
	Type     string // "text", "whole number", "list of text" …
	Doc      string
	Default  string // as one would write it; "" if there is none
	Enum     []string
	Required bool
	Secret   bool
	Tune     bool // see Tune; also where an object around it has it
	Single   bool // see Single; also where an object around it has it
}

// Fields lists the fields in the order of the schema. The fields of a nested object stand in its place.
func (s *Schema) Fields() []Field { return s.fieldsOf("", s.root, false, false, false) }

// Described is Fields for documents: the fields of the objects in a list, such as columns[].name, come after the list.
func (s *Schema) Described() []Field { return s.fieldsOf("", s.root, false, false, true) }

func (s *Schema) fieldsOf(path string, at *jsonschema.Schema, tune, single, inLists bool) []Field {
	var list []Field
	for _, name := range s.order[path] {
		field := at.Properties[name]
		if field == nil {
			continue
		}
		full := join(path, name)
		tunes, isSingle := tune || field.Extra[Tune] == true, single || field.Extra[Single] == true
		if types := typesOf(field); len(field.Properties) > 0 && (len(types) == 0 || slices.Contains(types, "object")) {
			list = append(list, s.fieldsOf(full, field, tunes, isSingle, inLists)...)
			continue
		}
		f := Field{
			Name: full, Type: typeName(field), Doc: field.Description, Default: written(field.Default),
			Enum: enumTexts(field), Required: slices.Contains(at.Required, name), Secret: field.WriteOnly,
			Tune: tunes, Single: isSingle,
		}
		if field.Items != nil {
			f.Enum = enumTexts(field.Items)
		}
		list = append(list, f)
		if inLists && field.Items != nil {
			list = append(list, s.fieldsOf(full+"[]", field.Items, tunes, isSingle, inLists)...)
		}
	}
	return list
}

// written writes a JSON value as the text that Parse reads.
func written(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		return string(value)
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = written(item)
	}
	return strings.Join(texts, ",")
}

// readOrder fills s.order from the schema of the object at path: a Go map does not keep the order of its keys.
func (s *Schema) readOrder(schema []byte, path string) error {
	var at struct{ Properties, Items json.RawMessage }
	if err := json.Unmarshal(schema, &at); err != nil {
		return nil // true and false are schemas, too
	}
	if at.Items != nil {
		if err := s.readOrder(at.Items, path+"[]"); err != nil {
			return err
		}
	}
	if at.Properties == nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(at.Properties, &fields); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(at.Properties))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return err
		}
		s.order[path] = append(s.order[path], name.(string))
		if err := s.readOrder(skip, join(path, name.(string))); err != nil {
			return err
		}
	}
	return nil
}

// Secrets lists the fields that are secrets.
func (s *Schema) Secrets() []string {
	var names []string
	for _, f := range s.Fields() {
		if f.Secret {
			names = append(names, f.Name)
		}
	}
	return names
}

// CheckSecrets refuses a schema with a secret that Secrets does not list: it would be kept and shown.
func (s *Schema) CheckSecrets() error {
	if s.marked == len(s.Secrets()) {
		return nil
	}
	return errors.New("a secret (writeOnly) must be a field of the config or of an object in it, and not stand within a " +
		"list, a map or an alternative, or behind a $ref")
}

// Split takes the secrets out of a config: they are sent separately and never kept with it.
func (s *Schema) Split(config []byte) (rest json.RawMessage, secrets map[string]string, err error) {
	rest, secrets = config, map[string]string{}
	for _, name := range s.Secrets() {
		rest, err = edit(rest, strings.Split(name, "."), func(fields map[string]json.RawMessage, last string) error {
			raw, given := fields[last]
			if !given {
				return nil
			}
			delete(fields, last)
			var text string
			if json.Unmarshal(raw, &text) != nil {
				return problem(name, "must be text")
			}
			secrets[name] = text
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return rest, secrets, nil
}

// Merge puts secrets back into a config.
func (s *Schema) Merge(config []byte, secrets map[string]string) (json.RawMessage, error) {
	for name, value := range secrets {
		if !slices.Contains(s.Secrets(), name) {
			return nil, problem(name, "is not a secret of this plugin")
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		config, err = edit(config, strings.Split(name, "."), func(fields map[string]json.RawMessage, last string) error {
			fields[last] = text
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return config, nil
}

// edit calls change with the fields of the object that holds the last name of path. It makes objects on the way that do
// not exist.
func edit(object []byte, path []string,
	change func(fields map[string]json.RawMessage, last string) error) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(object) > 0 {
		if err := json.Unmarshal(object, &fields); err != nil {
			return nil, errors.New("not a JSON object")
		}
	}
	if fields == nil { // null
		fields = map[string]json.RawMessage{}
	}
	if len(path) == 1 {
		if err := change(fields, path[0]); err != nil {
			return nil, err
		}
		return json.Marshal(fields)
	}
	inner, err := edit(fields[path[0]], path[1:], change)
	if err != nil {
		return nil, err
	}
	if _, given := fields[path[0]]; given || string(inner) != "{}" {
		fields[path[0]] = inner
	}
	return json.Marshal(fields)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
