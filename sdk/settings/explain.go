package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// explainer lists all errors of a value that does not fit its schema, by field. The validator of package jsonschema
// stops at the first error, names it by its place in the schema, and prints values, secret ones included. The
// explainer knows the keywords that package sdk writes into the schemas of plugins.
type explainer struct{ problems []Problem }

func (x *explainer) add(p Problem) { x.problems = append(x.problems, p) }

func (x *explainer) addf(path, format string, args ...any) {
	x.add(Problem{Field: path, Message: fmt.Sprintf(format, args...)})
}

func (x *explainer) value(path string, s *jsonschema.Schema, v any) {
	if s == nil {
		return
	}
	if types := typesOf(s); len(types) > 0 && !fitsType(types, v) {
		x.addf(path, "must be %s, not %s", typeName(s), describe(s, v))
		return
	}
	if s.Enum != nil && !slices.ContainsFunc(s.Enum, func(e any) bool { return jsonschema.Equal(e, v) }) {
		x.addf(path, "must be one of %s%s", strings.Join(enumTexts(s), ", "), given(s, v))
		return
	}
	switch v := v.(type) {
	case float64:
		x.number(path, s, v)
	case string:
		x.text(path, s, v)
	case []any:
		x.array(path, s, v)
	case map[string]any:
		x.object(path, s, v)
	}
}

func (x *explainer) number(path string, s *jsonschema.Schema, v float64) {
	if s.Minimum != nil && v < *s.Minimum {
		x.addf(path, "must be at least %s%s", plain(*s.Minimum), given(s, v))
	}
	if s.Maximum != nil && v > *s.Maximum {
		x.addf(path, "must be at most %s%s", plain(*s.Maximum), given(s, v))
	}
}

func (x *explainer) text(path string, s *jsonschema.Schema, v string) {
	n := utf8.RuneCountInString(v)
	switch {
	case s.MinLength != nil && n < *s.MinLength && n == 0:
		x.addf(path, "must not be empty")
	case s.MinLength != nil && n < *s.MinLength:
		x.addf(path, "must have at least %d characters%s", *s.MinLength, given(s, v))
	case s.MaxLength != nil && n > *s.MaxLength:
		x.addf(path, "must have at most %d characters, has %d", *s.MaxLength, n)
	case s.Format == Duration && !durationForm().MatchString(v):
		x.addf(path, "must be a duration such as 30s, 5m or 7d%s", given(s, v))
	case s.Pattern != "":
		if re, err := regexp.Compile(s.Pattern); err == nil && !re.MatchString(v) {
			x.addf(path, "must match %s%s", s.Pattern, given(s, v))
		}
	}
}

func (x *explainer) array(path string, s *jsonschema.Schema, v []any) {
	if s.MinItems != nil && len(v) < *s.MinItems {
		x.addf(path, "must have at least %d entries, has %d", *s.MinItems, len(v))
	}
	if s.MaxItems != nil && len(v) > *s.MaxItems {
		x.addf(path, "must have at most %d entries, has %d", *s.MaxItems, len(v))
	}
	for i, e := range v {
		x.value(fmt.Sprintf("%s[%d]", path, i), s.Items, e)
	}
}

func (x *explainer) object(path string, s *jsonschema.Schema, v map[string]any) {
	for _, name := range s.Required {
		if _, there := v[name]; !there {
			x.add(Problem{Field: join(path, name), Message: "is required", Missing: true})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		field := s.Properties[name]
		if field == nil {
			if field = s.AdditionalProperties; isFalse(field) {
				x.add(unknown(path, name, s))
				continue
			}
		}
		x.value(join(path, name), field, v[name])
	}
}

// unknown is the problem of a field that the object s does not have.
func unknown(path, name string, s *jsonschema.Schema) Problem {
	names := slices.Sorted(maps.Keys(s.Properties))
	p := Problem{Field: join(path, name), Message: "there is no such field", Unknown: true}
	if near := Suggest(name, names); near != "" {
		p.Suggestion = join(path, near)
		p.Hint = "did you mean " + p.Suggestion + "?"
	} else if len(names) > 0 {
		p.Hint = "there are " + strings.Join(names, ", ")
	}
	return p
}

// given is the end of a message: the value that was given, unless it is a secret.
func given(s *jsonschema.Schema, v any) string {
	if s.WriteOnly {
		return ""
	}
	text := plain(v)
	if t, ok := v.(string); ok {
		text = fmt.Sprintf("%q", t)
	}
	if len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	return ", not " + text
}

// plain is a value as text. A number has no exponent, unless JSON writes it with one.
func plain(v any) string {
	if n, ok := v.(float64); ok {
		text, _ := json.Marshal(n) // it was read from JSON
		return string(text)
	}
	return fmt.Sprint(v)
}

func describe(s *jsonschema.Schema, v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(v)
	case float64:
		if s.WriteOnly { // it may be the secret itself
			return "a number"
		}
		return "the number " + plain(v)
	case string:
		return "text"
	case []any:
		return "a list"
	default:
		return "an object"
	}
}

// fitsType reports whether a value has one of the types.
func fitsType(allowed []string, v any) bool {
	is := isObject // the bit of the JSON type of v
	switch v := v.(type) {
	case nil:
		is = isNull
	case bool:
		is = isBool
	case float64:
		is = typeOfNumber(v)
	case string:
		is = isText
	case []any:
		is = isArray
	}
	return slices.ContainsFunc(allowed, func(name string) bool { return typeNames[name]&is != 0 })
}

// typesOf are the JSON types that a schema allows; none means that it allows all.
func typesOf(s *jsonschema.Schema) []string {
	switch {
	case s == nil:
		return nil
	case s.Type != "":
		return []string{s.Type}
	default:
		return s.Types
	}
}

// typeName is the type in words for people.
func typeName(s *jsonschema.Schema) string {
	if s != nil && s.Format == Duration {
		return "a duration"
	}
	for _, t := range typesOf(s) {
		switch t {
		case "string":
			return "text"
		case "integer":
			return "a whole number"
		case "number":
			return "a number"
		case "boolean":
			return "true or false"
		case "array":
			return "a list"
		case "object":
			return "an object"
		}
	}
	return "anything"
}

// enumTexts are the allowed values of a field.
func enumTexts(s *jsonschema.Schema) []string {
	var texts []string
	for _, v := range s.Enum {
		texts = append(texts, plain(v))
	}
	return texts
}
