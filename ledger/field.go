package ledger

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// FieldTerm is a condition on one field of a JSON object: of the payload, or of the output of the newest attempt that
// has one. A JSON string is compared as it is, a number as it is written there, anything else as compact JSON. There is
// no match if the text is no JSON, has no such field, or has null there.
type FieldTerm struct {
	Of     string   // "payload" or "output"
	Path   []string // names that lead into objects
	Op     string   // ":" equals one of Values, "~" contains Values[0], ">" and "<" compare with the number Values[0]
	Values []string
	// Hidden are names of fields that the condition must not reveal: an object or a list that has one, at any depth, does
	// not match.
	Hidden []string
}

// asksFields reports whether a filter has conditions that the store does not check.
func (f Filter) asksFields() bool {
	return len(f.Fields) > 0 || slices.ContainsFunc(f.Also, Filter.asksFields)
}

// asksOutput reports whether a filter can be matched only with records that were read with their output.
func (f Filter) asksOutput() bool {
	return slices.ContainsFunc(f.Fields, func(t FieldTerm) bool { return t.Of == "output" }) ||
		slices.ContainsFunc(f.Also, Filter.asksOutput)
}

// stored returns the part of the filter that the store checks: without conditions on fields.
func (f Filter) stored() Filter {
	if !f.asksFields() {
		return f
	}
	f.Fields = nil
	f.Also = slices.Clone(f.Also)
	for i := range f.Also {
		f.Also[i] = f.Also[i].stored()
	}
	return f
}

// matchFields reports whether payload and output meet the conditions of the filter on fields, with those of f.Also.
func (f Filter) matchFields(payload, output []byte) bool {
	return !slices.ContainsFunc(f.Fields, func(t FieldTerm) bool { return !t.match(payload, output) }) &&
		!slices.ContainsFunc(f.Also, func(g Filter) bool { return !g.matchFields(payload, output) })
}

func (t FieldTerm) match(payload, output []byte) bool {
	text := payload
	if t.Of == "output" {
		text = output
	}
	found := fieldOf(text, t.Path)
	if found == nil || len(t.Values) == 0 || hasField(found, t.Hidden) {
		return false
	}
	value := string(found)
	_ = json.Unmarshal(found, &value) // only a string changes value
	switch t.Op {
	case "~":
		return strings.Contains(value, t.Values[0])
	case ">", "<":
		bound, _ := strconv.ParseFloat(t.Values[0], 64)
		n, err := strconv.ParseFloat(value, 64)
		return err == nil && (t.Op == ">" && n > bound || t.Op == "<" && n < bound)
	}
	return slices.Contains(t.Values, value)
}

// hasField reports whether a value is an object with a field of one of these names, or contains one at any depth.
func hasField(value json.RawMessage, names []string) bool {
	if len(names) == 0 {
		return false
	}
	var object map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		_ = json.Unmarshal(value, &list) // anything else has no fields
	}
	for name, inner := range object {
		if slices.Contains(names, name) || hasField(inner, names) {
			return true
		}
	}
	return slices.ContainsFunc(list, func(inner json.RawMessage) bool { return hasField(inner, names) })
}

// fieldOf returns a field of a payload or an output; nil if there is none or it is null. This package reads it, and not
// the database, because payloads may be anything, and Postgres fails at a \u0000 in them.
func fieldOf(payload []byte, path []string) json.RawMessage {
	value := json.RawMessage(payload)
	for _, name := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(value, &object) != nil {
			return nil
		}
		value = object[name]
	}
	var text string
	switch {
	case len(value) == 0 || string(value) == "null":
		return nil
	case json.Unmarshal(value, &text) == nil: // the same string may be escaped in several ways
		return JSON(text)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, value) != nil {
		return nil
	}
	return compact.Bytes()
}
