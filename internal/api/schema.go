package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// schemas makes the schemas of types, each struct with a name of its own once.
type schemas struct {
	made  map[string]*jsonschema.Schema // by the name of the type
	types map[string]reflect.Type
	open  bool // fields that are not described may be there
}

func newSchemas() *schemas {
	return &schemas{made: map[string]*jsonschema.Schema{}, types: map[string]reflect.Type{}}
}

// newOpenSchemas is newSchemas for answers: fields may be added to them.
func newOpenSchemas() *schemas {
	s := newSchemas()
	s.open = true
	return s
}

const components = "#/components/schemas/"

// anything is the type of any JSON.
var anything = []string{"object", "array", "string", "number", "boolean", "null"}

// plain are types of which the JSON is not what their Go type looks like.
func plain() map[reflect.Type]*jsonschema.Schema {
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[report.Time](): {Types: []string{"string", "null"}, Format: "date-time",
			Description: "UTC, with microseconds"},
		reflect.TypeFor[report.Duration]():   {Types: []string{"number", "null"}, Description: "seconds"},
		reflect.TypeFor[report.Bytes]():      {Types: anything, Description: "JSON, or {\"base64\": …} of what is none"},
		reflect.TypeFor[json.RawMessage]():   {Types: anything},
		reflect.TypeFor[time.Time]():         {Type: "string", Format: "date-time"},
		reflect.TypeFor[answer.Moment]():     {Type: "string", Format: "date-time"},
		reflect.TypeFor[ledger.State]():      {Type: "string", Enum: words(ledger.States)},
		reflect.TypeFor[ledger.RoundState](): {Type: "string", Enum: words(ledger.RoundStates)},
		reflect.TypeFor[ledger.Outcome]():    {Type: "string", Enum: words(append([]ledger.Outcome{""}, ledger.Outcomes...))},
	}
}

// Described is the schema of a type as it is sent, with all structs in it in place.
func Described(t reflect.Type) *jsonschema.Schema {
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: plain()})
	if err != nil {
		panic("api: " + err.Error()) // a mistake in the type
	}
	newSchemas().tidy(schema)
	choices(t, schema)
	return schema
}

func words[T ~string](list []T) (all []any) {
	for _, w := range list {
		all = append(all, string(w))
	}
	return all
}

// of is the schema of a type: a reference, if it is a struct with a name.
func (s *schemas) of(t reflect.Type) *jsonschema.Schema {
	if named(t) {
		s.component(t)
		return &jsonschema.Schema{Ref: components + typeName(t)}
	}
	return s.inferred(t)
}

// named reports whether a type is a component of its own.
func named(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.Name() != "" && plain()[t] == nil
}

// typeName is the name of a component: ItemList for answer.List[answer.Item].
func typeName(t reflect.Type) string {
	outer, inner, generic := strings.Cut(t.Name(), "[")
	if generic {
		return inner[strings.LastIndexByte(inner, '.')+1:len(inner)-1] + outer
	}
	return strings.ToUpper(outer[:1]) + outer[1:]
}

// component makes the schema of a struct with a name, and of all those in it.
func (s *schemas) component(t reflect.Type) {
	name := typeName(t)
	if s.made[name] != nil {
		if s.types[name] != t { // one would be described as the other
			panic(fmt.Sprintf("api: %s and %s are both called %s", t, s.types[name], name))
		}
		return
	}
	s.types[name] = t
	s.made[name] = &jsonschema.Schema{} // it is being made
	s.made[name] = s.inferred(t)
}

// inferred is the schema of a type of which the structs inside are references.
func (s *schemas) inferred(t reflect.Type) *jsonschema.Schema {
	known := plain()
	for _, inner := range structs(t, nil) {
		s.component(inner)
		known[inner] = &jsonschema.Schema{Ref: components + typeName(inner)}
	}
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: known})
	if err != nil {
		panic("api: " + err.Error()) // a mistake in the type
	}
	s.tidy(schema)
	choices(t, schema)
	return schema
}

// choices are the words that fields with the tag oneof may have, as those of parameters.
func choices(t reflect.Type, schema *jsonschema.Schema) {
	if t.Kind() != reflect.Struct {
		return
	}
	for _, f := range reflect.VisibleFields(t) {
		if of := f.Tag.Get("oneof"); of != "" {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := schema.Properties[name]
			p.Type, p.Types, p.Enum = "string", nil, words(strings.Split(of, "|"))
		}
	}
}

// structs are the named structs in a type. An embedded struct is part of the type and not in the list.
func structs(t reflect.Type, found []reflect.Type) []reflect.Type {
	switch {
	case plain()[t] != nil:
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		if inner := t.Elem(); named(inner) && !slices.Contains(found, inner) {
			return append(found, inner)
		} else if !named(inner) {
			return structs(inner, found)
		}
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			switch {
			case f.Tag.Get("json") == "-", !f.IsExported() && !f.Anonymous:
			case !f.Anonymous && named(f.Type):
				if !slices.Contains(found, f.Type) {
					found = append(found, f.Type)
				}
			default:
				found = structs(f.Type, found)
			}
		}
	}
	return found
}

// tidy makes what was inferred as answers are: a list is never null, and fields may be added to answers.
func (s *schemas) tidy(schema *jsonschema.Schema) {
	if schema == nil {
		return
	}
	if schema.Items != nil && slices.Contains(schema.Types, "array") {
		schema.Type, schema.Types = "array", nil
	}
	if len(schema.Types) == len(anything) {
		schema.Items = &jsonschema.Schema{Description: "any JSON"}
	}
	if schema.Ref != "" && schema.Types != nil { // a pointer
		*schema = jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Ref: schema.Ref}, {Type: "null"}}}
	}
	if schema.Properties != nil && s.open {
		schema.AdditionalProperties = nil
	}
	s.tidy(schema.Items)
	s.tidy(schema.AdditionalProperties)
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		s.tidy(schema.Properties[name])
	}
}
