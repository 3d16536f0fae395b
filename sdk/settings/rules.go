package settings

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// rule is what a schema asks of a value, compiled to be checked on the text of the value. A nil rule asks nothing.
// Rules know the keywords that package sdk writes. A schema with another one has no rule, and its values go to the
// full validator. So do values that a rule refuses: a rule may be too strict, and must never be too lax.
type rule struct {
	schema     *jsonschema.Schema // with the limits
	types      types              // that the value may have
	pattern    *regexp.Regexp
	items      *rule
	properties map[string]property
	others     property // for all other properties
	closed     bool     // there must be no others
	required   uint64   // the bits of the properties that must be there
}

// property is the rule of a property, and its bit in rule.required.
type property struct {
	rule *rule
	bit  uint64
}

// types is a set of JSON types. A number is a whole one or has a fraction.
type types uint8

const (
	isNull types = 1 << iota
	isBool
	isWhole
	isFraction
	isText
	isArray
	isObject
)

var typeNames = map[string]types{"null": isNull, "boolean": isBool, "integer": isWhole, "number": isWhole | isFraction,
	"string": isText, "array": isArray, "object": isObject}

// compileRule makes the rule of a schema; ok is false if there is none.
func compileRule(s *jsonschema.Schema) (r *rule, ok bool) {
	if s == nil || reflect.ValueOf(*s).IsZero() {
		return nil, true
	}
	if !onlyKnown(*s) || len(s.Properties) > 64 {
		return nil, false
	}
	r = &rule{schema: s, properties: map[string]property{}}
	for _, name := range typesOf(s) {
		r.types |= typeNames[name]
	}
	if s.Type == "" && s.Types == nil {
		r.types = math.MaxUint8
	}
	if s.Pattern != "" {
		var err error
		if r.pattern, err = regexp.Compile(s.Pattern); err != nil {
			return nil, false
		}
	}
	if r.closed = isFalse(s.AdditionalProperties); !r.closed {
		if r.others.rule, ok = compileRule(s.AdditionalProperties); !ok {
			return nil, false
		}
	}
	for name, field := range s.Properties {
		p := property{bit: 1 << len(r.properties)}
		if p.rule, ok = compileRule(field); !ok {
			return nil, false
		}
		r.properties[name] = p
	}
	for _, name := range s.Required {
		if r.properties[name].bit == 0 {
			return nil, false
		}
		r.required |= r.properties[name].bit
	}
	r.items, ok = compileRule(s.Items)
	return r, ok
}

// onlyKnown reports whether a schema asks for nothing but what a rule checks.
func onlyKnown(s jsonschema.Schema) bool {
	if s.Schema == "https://json-schema.org/draft/2020-12/schema" {
		s.Schema = ""
	}
	// These are checked.
	s.Type, s.Types, s.Enum, s.Minimum, s.Maximum = "", nil, nil, nil, nil
	s.MinLength, s.MaxLength, s.Pattern = nil, nil, ""
	s.Format = "" // that of a duration; no other format is checked
	s.Items, s.MinItems, s.MaxItems = nil, nil, nil
	s.Properties, s.AdditionalProperties, s.Required = nil, nil, nil
	// These ask for nothing.
	s.Title, s.Description, s.Default, s.WriteOnly, s.Extra, s.PropertyOrder = "", "", nil, false, nil, nil
	s.ContentEncoding = ""
	return reflect.ValueOf(s).IsZero()
}

// isFalse reports whether no value fits a schema because it is false, also written {"not":{}}.
func isFalse(s *jsonschema.Schema) bool {
	return s != nil && s.Not != nil && reflect.ValueOf(*s.Not).IsZero()
}

// fits reports whether a value keeps the rule. The value is valid JSON without space around it.
func (r *rule) fits(value []byte) bool {
	if r == nil {
		var v any
		return json.Unmarshal(value, &v) == nil // a number may be too large
	}
	switch value[0] {
	case '{':
		return r.types&isObject != 0 && r.schema.Enum == nil && r.fitsObject(value)
	case '[':
		return r.types&isArray != 0 && r.schema.Enum == nil && r.fitsArray(value)
	case '"':
		return r.types&isText != 0 && r.fitsText(textOf(value))
	case 't', 'f':
		return r.types&isBool != 0 && r.allows(value[0] == 't')
	case 'n':
		return r.types&isNull != 0 && r.allows(nil)
	default:
		n, err := strconv.ParseFloat(string(value), 64)
		return err == nil && r.fitsNumber(n)
	}
}

func (r *rule) fitsObject(object []byte) bool {
	var there uint64
	in := inside{object[1:]}
	for name := in.next(); name != nil; name = in.next() {
		p, known := r.properties[string(textOf(name))]
		if !known {
			p = r.others
		}
		if !known && r.closed || !p.rule.fits(in.next()) {
			return false
		}
		there |= p.bit
	}
	return there&r.required == r.required
}

func (r *rule) fitsArray(array []byte) bool {
	n := 0
	in := inside{array[1:]}
	for item := in.next(); item != nil; item = in.next() {
		if !r.items.fits(item) {
			return false
		}
		n++
	}
	return within(n, r.schema.MinItems, r.schema.MaxItems)
}

func (r *rule) fitsText(text []byte) bool {
	return within(utf8.RuneCount(text), r.schema.MinLength, r.schema.MaxLength) &&
		(r.pattern == nil || r.pattern.Match(text)) &&
		(r.schema.Enum == nil || r.allows(string(text))) &&
		(r.schema.Format != Duration || len(text) < shortDuration || isDuration(string(text)))
}

// shortDuration: a shorter text that matches DurationPattern always fits into time.Duration; the first that does not is
// 15251w.
const shortDuration = 6

func isDuration(text string) bool {
	_, err := ParseDuration(text)
	return err == nil
}

func (r *rule) fitsNumber(n float64) bool {
	return r.types&typeOfNumber(n) != 0 && within(n, r.schema.Minimum, r.schema.Maximum) && r.allows(n)
}

func typeOfNumber(n float64) types {
	if n == math.Trunc(n) {
		return isWhole
	}
	return isFraction
}

// allows reports whether a value that is neither an array nor an object is one of those that the schema lists.
func (r *rule) allows(value any) bool {
	return r.schema.Enum == nil || slices.Contains(r.schema.Enum, value)
}

// within reports whether a value keeps the limits; nil is none.
func within[N int | float64](n N, least, most *N) bool {
	return (least == nil || n >= *least) && (most == nil || n <= *most)
}

// inside goes through an object or an array of valid JSON, after its first bracket. In an object, names and values
// take turns.
type inside struct{ rest []byte }

// next returns the next name or value, nil at the end.
func (in *inside) next() []byte {
	in.rest = bytes.TrimLeft(in.rest, " \t\r\n,:")
	n := lengthOf(in.rest)
	value := in.rest[:n:n]
	if in.rest = in.rest[n:]; n == 0 {
		return nil
	}
	return value
}

// lengthOf is the number of bytes of the value at the beginning of a text.
func lengthOf(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 { // the end of the object or array around the value
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 { // behind a number or a word
				return i
			}
		}
	}
	return len(text)
}

// textOf decodes a JSON string.
func textOf(quoted []byte) []byte {
	text := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text) {
		return text
	}
	var plain string
	_ = json.Unmarshal(quoted, &plain) // it is known to be valid
	return []byte(plain)
}
