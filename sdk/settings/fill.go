package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// Fill adds the defaults of absent fields. It writes durations as nanoseconds, and whole numbers without fraction and
// exponent: encoding/json reads a time.Duration and an int in these forms only. All other bytes stay. The value must be
// valid; Fill checks only durations, and its error is then an *Error.
func (s *Schema) Fill(value []byte) ([]byte, error) {
	if len(value) == 0 {
		value = []byte("{}")
	}
	if s.filling == nil {
		return value, nil
	}
	var raw json.RawMessage
	if err := json.Unmarshal(value, &raw); err != nil {
		return nil, err
	}
	return s.filling.appendTo(nil, raw)
}

// filling is what Fill does with the values of a schema. A nil one does nothing.
type filling struct {
	path     string // of the value
	duration bool
	whole    bool // numbers are whole
	items    *filling
	fields   map[string]*filling // by name of the property; nil for one that stays as it is
	others   *filling            // of additional properties
	absent   []member            // the defaults; an object gets those that it does not have
}

type member struct {
	name string
	text []byte // "name":value
}

// newFilling makes the filling of a schema; nil if it changes no value.
func newFilling(path string, at *jsonschema.Schema) (f *filling, err error) {
	if at == nil {
		return nil, nil
	}
	types := typesOf(at)
	// A schema of strings alone keeps its text.
	f = &filling{path: path, duration: at.Format == Duration && at.Type != "string", fields: map[string]*filling{},
		whole: slices.Contains(types, "integer") && !slices.Contains(types, "number")}
	changes := f.duration || f.whole
	for _, name := range slices.Sorted(maps.Keys(at.Properties)) {
		field := at.Properties[name]
		within, err := newFilling(join(path, name), field)
		if err != nil {
			return nil, err
		}
		f.fields[name] = within
		value := field.Default
		if value == nil && within != nil && field.Type == "object" {
			value = json.RawMessage("{}") // for the defaults within
		}
		if value != nil {
			text, err := within.appendTo(append(quote(name), ':'), value)
			if err != nil {
				return nil, fmt.Errorf("default of %s: %w", name, err)
			}
			f.absent = append(f.absent, member{name, text})
		}
		changes = changes || within != nil || value != nil
	}
	if f.items, err = newFilling(path+"[]", at.Items); err != nil {
		return nil, err
	}
	if f.others, err = newFilling(join(path, "*"), at.AdditionalProperties); err != nil {
		return nil, err
	}
	if !changes && f.items == nil && f.others == nil {
		return nil, nil
	}
	return f, nil
}

func quote(name string) []byte {
	text, _ := json.Marshal(name) // any string can be written
	return text
}

// appendTo appends a value to out and fills it in. The value is valid JSON without space around it.
func (f *filling) appendTo(out, value []byte) ([]byte, error) {
	switch {
	case f == nil:
		return append(out, value...), nil
	case value[0] == '"' && f.duration:
		d, err := ParseDuration(string(textOf(value)))
		if err != nil {
			return nil, problem(f.path, "%v", err)
		}
		return strconv.AppendInt(out, int64(d), 10), nil
	case value[0] == '{':
		return f.appendObject(out, value)
	case f.whole && (value[0] == '-' || '0' <= value[0] && value[0] <= '9') && bytes.ContainsAny(value, ".eE"):
		return appendWhole(out, value), nil
	case value[0] == '[' && f.items != nil:
		return f.appendArray(out, value)
	default:
		return append(out, value...), nil
	}
}

// appendWhole appends a number, without fraction and exponent if it is whole and has at most 64 bits.
func appendWhole(out, number []byte) []byte {
	n, _, err := big.ParseFloat(string(number), 10, 128, big.ToZero)
	if err != nil || !n.IsInt() || n.MantExp(nil) > 64 {
		return append(out, number...)
	}
	return n.Append(out, 'f', 0)
}

func (f *filling) appendObject(out, object []byte) (_ []byte, err error) {
	begin := len(out)
	var given [][]byte // the names of properties
	in := inside{object[1:]}
	for name := in.next(); name != nil; name = in.next() {
		text := textOf(name)
		field, known := f.fields[string(text)]
		if known {
			given = append(given, text)
		} else {
			field = f.others
		}
		out = append(append(append(out, ','), name...), ':')
		if out, err = field.appendTo(out, in.next()); err != nil {
			return nil, err
		}
	}
	for _, m := range f.absent {
		if !slices.ContainsFunc(given, func(name []byte) bool { return string(name) == m.name }) {
			out = append(append(out, ','), m.text...)
		}
	}
	return bracketed(out, begin, '{', '}'), nil
}

func (f *filling) appendArray(out, array []byte) (_ []byte, err error) {
	begin := len(out)
	in := inside{array[1:]}
	for item := in.next(); item != nil; item = in.next() {
		if out, err = f.items.appendTo(append(out, ','), item); err != nil {
			return nil, err
		}
	}
	return bracketed(out, begin, '[', ']'), nil
}

// bracketed puts brackets around a list that was appended from begin on, with a comma before each entry.
func bracketed(out []byte, begin int, left, right byte) []byte {
	if len(out) == begin {
		return append(out, left, right)
	}
	out[begin] = left
	return append(out, right)
}
