package settings

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// Parse puts assignments over base, a JSON object or nothing, and returns the result. An assignment
// is "name=value". The schema decides how value is read: as text, a number, true or false, or a
// list with commas between its parts (nothing is the empty list). "name:=JSON" sets any JSON.
// Dots in the name lead into nested objects. The last one of equal names counts.
//
// The error is an *Error. The result is not validated as a whole: Validate does that, once
// everything is put together.
func (s *Schema) Parse(base []byte, assignments []string) (json.RawMessage, error) {
	result := json.RawMessage(base)
	if len(result) == 0 {
		result = json.RawMessage("{}")
	}
	for _, a := range assignments {
		name, text, raw, err := splitAssignment(a)
		if err != nil {
			return nil, err
		}
		path := strings.Split(name, ".")
		field, err := s.find(path)
		if err != nil {
			return nil, err
		}
		if !utf8.ValidString(text) { // JSON would make other text of it
			return nil, problem(name, "is not UTF-8")
		}
		value := json.RawMessage(text)
		if raw {
			if !json.Valid(value) {
				return nil, problem(name, "what follows := must be JSON")
			}
		} else if value, err = convert(name, field, text); err != nil {
			return nil, err
		}
		result, err = edit(result, path, func(fields map[string]json.RawMessage, last string) error {
			fields[last] = value
			return nil
		})
		if err != nil {
			return nil, problem(name, "cannot be set: %v", err)
		}
	}
	return result, nil
}

// Assigned is the name of the field that an assignment is for.
func Assigned(assignment string) string {
	name, _, _, _ := splitAssignment(assignment)
	return name
}

func splitAssignment(a string) (name, text string, raw bool, err error) {
	name, text, found := strings.Cut(a, "=")
	if !found || strings.Trim(name, ":") == "" {
		return "", "", false, problem("", "%q is not name=value", a)
	}
	name, raw = strings.CutSuffix(name, ":")
	return name, text, raw, nil
}

// find looks up the schema of a field; nil allows any value.
func (s *Schema) find(path []string) (*jsonschema.Schema, error) {
	at, within := s.root, ""
	for _, name := range path {
		if at == nil || len(at.Properties) == 0 && at.AdditionalProperties == nil {
			return nil, nil
		}
		next := at.Properties[name]
		if next == nil {
			if next = at.AdditionalProperties; isFalse(next) {
				return nil, &Error{[]Problem{unknown(within, name, at)}}
			}
		}
		at, within = next, join(within, name)
	}
	return at, nil
}

// convert writes text as JSON of the type that the schema of its field asks for.
func convert(name string, field *jsonschema.Schema, text string) (json.RawMessage, error) {
	types := typesOf(field)
	if slices.Contains(types, "string") || len(types) == 0 {
		return json.Marshal(text)
	}
	for _, t := range types {
		switch t {
		case "boolean":
			if text == "true" || text == "false" {
				return json.RawMessage(text), nil
			}
		case "integer":
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				return json.RawMessage(strconv.FormatInt(n, 10)), nil // 007 and +7 are not JSON
			}
		case "number":
			if json.Valid([]byte(text)) && isNumber(text) {
				return json.RawMessage(text), nil
			}
		case "array":
			return convertList(name, field.Items, text)
		case "object":
			return nil, problem(name, "has fields of its own: give them as %s.FIELD=…, or all of it as %s:=JSON", name, name)
		}
	}
	return nil, problem(name, "must be %s%s", typeName(field), given(field, text))
}

// isNumber distinguishes a JSON number from other JSON.
func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

func convertList(name string, items *jsonschema.Schema, text string) (json.RawMessage, error) {
	list := []json.RawMessage{}
	if text != "" {
		for part := range strings.SplitSeq(text, ",") {
			v, err := convert(name, items, strings.TrimSpace(part))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
	}
	return json.Marshal(list)
}
