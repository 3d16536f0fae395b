package sdk

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// role is what a type is for; it decides which tags make sense.
type role string

const (
	roleConfig  role = "config"
	rolePayload role = "payload"
	roleOutput  role = "output"
)

// shape is the schema of a Go type.
type shape struct {
	json   []byte // its text
	schema *settings.Schema
	input  *wire.Input // the fields with the tag input; nil if there are none
}

// shapeOf derives the schema of a type. The error names the field whose tag makes no sense.
func shapeOf(t reflect.Type, r role) (*shape, error) {
	b := builder{role: r}
	root, err := b.schema(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	root.Schema = "https://json-schema.org/draft/2020-12/schema"
	s := &shape{}
	if b.input.Field != "" {
		s.input = &b.input
	}
	if b.input.Type != "file" && b.input.Modified+b.input.Owner != "" {
		return nil, fmt.Errorf("%s: input modified and owner are of a file, and no field is the file", r)
	}
	if s.json, err = json.Marshal(root); err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	if s.schema, err = settings.Compile(s.json); err != nil {
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	return s, nil
}

// decode checks raw and reads it into a pointer to the type. The error names the field.
func (s *shape) decode(raw []byte, into any) error {
	if err := s.schema.Validate(raw); err != nil {
		return err
	}
	filled, err := s.schema.Fill(raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(filled, into)
}

// builder makes the schema of one type. Package jsonschema makes the schemas of scalars. Structs are made here, because
// of their tags, and because a field without a json tag is no setting.
type builder struct {
	role  role
	input wire.Input     // as far as it was seen
	path  []string       // of the field at hand
	many  int            // lists and maps around it
	in    []reflect.Type // structs that are being made, to see cycles
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	bytesType    = reflect.TypeFor[[]byte]()
)

func (b *builder) schema(t reflect.Type) (*jsonschema.Schema, error) {
	switch {
	case t == durationType && b.role == roleOutput:
		return &jsonschema.Schema{Type: "integer", Description: "nanoseconds"}, nil
	case t == durationType:
		return &jsonschema.Schema{
			Types: []string{"string", "integer"}, Format: settings.Duration, Pattern: settings.DurationPattern,
		}, nil
	case t == timeType:
		return &jsonschema.Schema{Type: "string", Format: "date-time"}, nil
	case t == rawType, t.Kind() == reflect.Interface, b.writesItself(t, reflect.TypeFor[json.Marshaler](),
		reflect.TypeFor[json.Unmarshaler]()):
		return &jsonschema.Schema{}, nil
	case b.writesItself(t, reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()):
		return &jsonschema.Schema{Type: "string"}, nil
	case t == bytesType:
		return nullable(&jsonschema.Schema{Type: "string", ContentEncoding: "base64"}), nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		s, err := b.schema(t.Elem())
		return nullable(s), err
	case reflect.Struct:
		return b.object(t)
	case reflect.Slice, reflect.Array:
		items, err := b.values(t)
		if err != nil {
			return nil, err
		}
		s := &jsonschema.Schema{Type: "array", Items: items}
		if t.Kind() == reflect.Array {
			s.MinItems, s.MaxItems = new(t.Len()), new(t.Len())
			return s, nil
		}
		return nullable(s), nil
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, b.errorf("maps must have keys of type string, not %v", t.Key())
		}
		values, err := b.values(t)
		return nullable(&jsonschema.Schema{Type: "object", AdditionalProperties: values}), err
	default:
		s, err := jsonschema.ForType(t, nil)
		if err != nil {
			return nil, b.errorf("type %v cannot be JSON", t)
		}
		return s, nil
	}
}

// values is the schema of what a list or a map holds.
func (b *builder) values(t reflect.Type) (*jsonschema.Schema, error) {
	b.many++
	defer func() { b.many-- }()
	return b.schema(t.Elem())
}

// writesItself reports whether a type takes care of its own JSON, in the direction of the role.
func (b *builder) writesItself(t, marshal, unmarshal reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		return false // the type that it points to decides
	}
	if b.role == roleOutput {
		return t.Implements(marshal)
	}
	return reflect.PointerTo(t).Implements(unmarshal)
}

// nullable also allows null. It sets a pointer, slice or map to nil.
func nullable(s *jsonschema.Schema) *jsonschema.Schema {
	switch {
	case s == nil:
	case s.Type != "":
		s.Type, s.Types = "", []string{s.Type, "null"}
	case s.Types != nil && !slices.Contains(s.Types, "null"):
		s.Types = append(s.Types, "null")
	}
	return s
}

func (b *builder) object(t reflect.Type) (*jsonschema.Schema, error) {
	if slices.Contains(b.in, t) {
		if b.role == roleOutput {
			return &jsonschema.Schema{}, nil // anything
		}
		return nil, b.errorf("type %v contains itself", t)
	}
	b.in = append(b.in, t)
	defer func() { b.in = b.in[:len(b.in)-1] }()

	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	if b.role != roleOutput {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}} // no others
	}
	fields := reflect.VisibleFields(t)
	shallowest := map[string]int{} // depth of the field that encoding/json fills, of those with the same name
	for _, f := range fields {
		if name, ok := b.nameOf(t, f); ok {
			shallowest[name] = min(cmp.Or(shallowest[name], math.MaxInt), len(f.Index))
		}
	}
	for _, f := range fields {
		name, ok := b.nameOf(t, f)
		if !ok || len(f.Index) > shallowest[name] {
			continue
		}
		b.path = append(b.path, name)
		field, required, err := b.field(f)
		b.path = b.path[:len(b.path)-1]
		if err != nil {
			return nil, err
		}
		if s.Properties[name] == nil { // two of the same depth may have it
			s.PropertyOrder = append(s.PropertyOrder, name)
		}
		s.Properties[name] = field
		if required {
			s.Required = append(s.Required, name)
		}
	}
	return s, nil
}

// nameOf is the JSON name of a visible field of t, and whether it has one. A field of an embedded struct that itself
// has a name, or "-", has none in t.
func (b *builder) nameOf(t reflect.Type, f reflect.StructField) (string, bool) {
	for i := 1; i < len(f.Index); i++ {
		if name, _, _ := strings.Cut(t.FieldByIndex(f.Index[:i]).Tag.Get("json"), ","); name != "" {
			return "", false
		}
	}
	tag, tagged := f.Tag.Lookup("json")
	name, _, _ := strings.Cut(tag, ",")
	if tag == "-" || !f.IsExported() || f.Anonymous && name == "" {
		return "", false
	}
	if name == "" {
		name = f.Name
		tagged = tagged && tag != ""
	}
	return name, tagged || b.role == roleOutput
}

// field makes the schema of one field from its type and tags.
func (b *builder) field(f reflect.StructField) (s *jsonschema.Schema, required bool, err error) {
	if s, err = b.schema(f.Type); err != nil {
		return nil, false, err
	}
	if _, options, _ := strings.Cut(f.Tag.Get("json"), ","); b.role != roleOutput &&
		slices.Contains(strings.Split(options, ","), "string") {
		return nil, false, b.errorf("the option string of json is not for settings: they are given as their type is")
	}
	if doc := f.Tag.Get("doc"); doc != "" {
		s.Description = doc
	}
	if tag, ok := f.Tag.Lookup("schema"); ok {
		if required, err = b.rules(s, tag); err != nil {
			return nil, false, err
		}
	}
	if tag, ok := f.Tag.Lookup("default"); ok {
		if err := b.defaultValue(s, tag); err != nil {
			return nil, false, err
		}
	}
	if tag, ok := f.Tag.Lookup("input"); ok {
		fills, err := b.inputField(s, f, tag)
		if err != nil {
			return nil, false, err
		}
		required = required || fills
	}
	if tag, ok := f.Tag.Lookup("secret"); ok && tag == "true" {
		if b.role != roleConfig || f.Type.Kind() != reflect.String {
			return nil, false, b.errorf("secret is for string fields of the config")
		}
		if b.many > 0 { // its name would be that of several values
			return nil, false, b.errorf("secret is not for fields within a list or a map")
		}
		if s.Default != nil {
			return nil, false, b.errorf("a secret has no default")
		}
		s.WriteOnly = true
	}
	if tag, ok := f.Tag.Lookup("tune"); ok {
		if b.role != roleConfig || tag != "true" {
			return nil, false, b.errorf(`tune:"true" is for fields of the config`)
		}
		s.Extra = map[string]any{settings.Tune: true}
	}
	if tag, ok := f.Tag.Lookup("single"); ok {
		if b.role != rolePayload || tag != "true" {
			return nil, false, b.errorf(`single:"true" is for fields of the payload`)
		}
		s.Extra = map[string]any{settings.Single: true}
	}
	return s, required, nil
}

// inputField notes a field that the command line fills.
func (b *builder) inputField(s *jsonschema.Schema, f reflect.StructField, tag string) (required bool, err error) {
	at, known := map[string]*string{
		"file": &b.input.Field, "url": &b.input.Field, "line": &b.input.Field, "modified": &b.input.Modified,
		"owner": &b.input.Owner,
	}[tag]
	switch {
	case b.role != rolePayload || len(b.path) != 1 || f.Type.Kind() != reflect.String:
		return false, b.errorf("input is for a string field of the payload, at its top")
	case !known:
		return false, b.errorf("input must be file, url or line, or modified or owner of a file, not %q", tag)
	case *at != "":
		return false, b.errorf("the payload has such an input field already, %s", *at)
	}
	*at = b.path[0]
	if at != &b.input.Field {
		return false, nil
	}
	if s.Default != nil {
		return false, b.errorf("INPUT fills the field, so it has no default")
	}
	b.input.Type = tag
	s.MinLength = cmp.Or(s.MinLength, new(1))
	return true, nil
}

// defaultValue reads a default: JSON, or text without its quotes.
func (b *builder) defaultValue(s *jsonschema.Schema, tag string) error {
	text := tag
	if s.Type == "string" || slices.Contains(s.Types, "string") {
		quoted, err := json.Marshal(tag)
		if err != nil {
			return err
		}
		text = string(quoted)
	}
	if !json.Valid([]byte(text)) {
		return b.errorf("default %q is not JSON", tag)
	}
	s.Default = json.RawMessage(text)
	return nil
}

// rules reads the tag schema. On a list, rules for its length apply to the list, all others to its entries.
func (b *builder) rules(s *jsonschema.Schema, tag string) (required bool, err error) {
	entry := s
	if s.Items != nil {
		entry = s.Items
	}
	numbers := map[string]**float64{"min": &entry.Minimum, "max": &entry.Maximum}
	counts := map[string]**int{
		"minLength": &entry.MinLength, "maxLength": &entry.MaxLength, "minItems": &s.MinItems, "maxItems": &s.MaxItems,
	}
	for tag != "" {
		var rule string
		if strings.HasPrefix(tag, "pattern=") {
			rule, tag = tag, ""
		} else {
			rule, tag, _ = strings.Cut(tag, ",")
		}
		name, value, _ := strings.Cut(strings.TrimSpace(rule), "=")
		switch {
		case name == "required":
			required = true
		case name == "pattern":
			if _, err = regexp.Compile(value); err == nil {
				entry.Pattern = value
			}
		case name == "enum":
			err = enum(entry, strings.Split(value, "|"))
		case numbers[name] != nil && entry.Format == settings.Duration:
			err = errors.New("not for durations, which are text; compare them in Validate or in the function")
		case numbers[name] != nil:
			err = set(numbers[name], value, func(v string) (float64, error) { return strconv.ParseFloat(v, 64) })
		case counts[name] != nil:
			err = set(counts[name], value, strconv.Atoi)
		default:
			known := slices.Sorted(maps.Keys(counts))
			err = fmt.Errorf("unknown; there are required, enum, pattern, min, max, %s", strings.Join(known, ", "))
		}
		if err != nil {
			return false, b.errorf("schema rule %q: %v", rule, err)
		}
	}
	return required, nil
}

func set[T any](at **T, value string, parse func(string) (T, error)) error {
	v, err := parse(value)
	*at = &v
	return err
}

// enum reads the allowed values: they have the type of the field.
func enum(s *jsonschema.Schema, values []string) error {
	for _, text := range values {
		if s.Type == "string" || slices.Contains(s.Types, "string") {
			s.Enum = append(s.Enum, text)
			continue
		}
		var v any
		if json.Unmarshal([]byte(text), &v) != nil {
			return errors.New("a value is not JSON")
		}
		s.Enum = append(s.Enum, v)
	}
	return nil
}

func (b *builder) errorf(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if len(b.path) == 0 {
		return errors.New(text)
	}
	return fmt.Errorf("field %s: %s", strings.Join(b.path, "."), text)
}
