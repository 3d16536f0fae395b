package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Defaults are what commands put into the payload of new items of a kind where nothing else says it: by
// field, with dots for nesting. The ledger itself adds none of it to any item.
type Defaults map[string]Default

// Default is the default of one field.
type Default struct {
	Value json.RawMessage `json:"value"` // that commands gave last, or an operator
	// Kept says that an operator has set it: what commands give does not change it.
	Kept bool `json:"kept,omitempty"`
	// Varied says that commands have given different values, so none of them is a default.
	Varied bool `json:"varied,omitempty"`
}

// Remember notes what a command has given. A field that was given differently before has no default any
// more; one that an operator has set keeps it.
func (d Defaults) Remember(given map[string]json.RawMessage) Defaults {
	out := maps.Clone(d)
	if out == nil && len(given) > 0 {
		out = Defaults{}
	}
	for name, value := range given {
		have, known := d[name]
		if have.Kept {
			continue
		}
		out[name] = Default{Value: value, Varied: have.Varied || known && !sameJSON(have.Value, value)}
	}
	return out
}

// Of returns the fields that have a default, and those that a command has to give, both by name. What
// cannot be undone is not done from memory: of a kind whose items come into doubt only what an operator
// has set is a default.
func (d Defaults) Of(onLost OnLost) (have, varied []string) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		switch def := d[name]; {
		case !def.Kept && onLost == OnLostDoubt:
		case def.Varied:
			varied = append(varied, name)
		default:
			have = append(have, name)
		}
	}
	return have, varied
}

// String lists the fields and their values.
func (d Defaults) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(d)) {
		text := name + "=" + string(d[name].Value)
		switch {
		case d[name].Kept:
			text += " (kept)"
		case d[name].Varied:
			text += " (varied)"
		}
		parts = append(parts, text)
	}
	return "[" + strings.Join(parts, " ") + "]"
}

func (c *checker) defaults(d Defaults) {
	for name, def := range d {
		if name == "" || !json.Valid(def.Value) {
			c.fail("defaults", "the value of %q is not JSON", name)
		}
	}
	if b, err := json.Marshal(d); err != nil || len(b) > maxDefaults {
		c.fail("defaults", "%d bytes as JSON, at most %d", len(b), maxDefaults)
	}
}

// sameJSON compares two values, whatever the order of names in them.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return decodeNumbers(a, &x) == nil && decodeNumbers(b, &y) == nil && fmt.Sprintf("%#v", x) == fmt.Sprintf("%#v", y)
}

// decodeNumbers reads JSON and leaves its numbers as they are written.
func decodeNumbers(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// payloadOver is the payload that a known item has once it is opened again by n: all of n's, or what the
// item has with the fields that n gives.
func (n *NewItem) payloadOver(r *Record) []byte {
	switch {
	case len(n.Payload) == 0 && r.pruned(): // from now on it has none
		return nil
	case len(n.Payload) == 0 || bytes.Equal(n.Payload, r.Payload):
		return r.Payload
	case n.Given == nil || r.pruned():
		return n.Payload
	}
	var have, want map[string]json.RawMessage
	if json.Unmarshal(n.Payload, &want) != nil || len(r.Payload) > 0 && json.Unmarshal(r.Payload, &have) != nil {
		return n.Payload
	}
	changed := false
	for _, name := range n.Given {
		var put bool
		if have, put = give(have, want, strings.Split(name, ".")); put {
			changed = true
		}
	}
	if !changed {
		return r.Payload
	}
	return JSON(have)
}

// give copies the value at a path, if there is one, and says whether that changed anything.
func give(have, want map[string]json.RawMessage, path []string) (map[string]json.RawMessage, bool) {
	value, given := want[path[0]]
	if !given {
		return have, false
	}
	if len(path) > 1 {
		var in, from map[string]json.RawMessage
		if json.Unmarshal(value, &from) != nil || len(have[path[0]]) > 0 && json.Unmarshal(have[path[0]], &in) != nil {
			return have, false
		}
		inner, changed := give(in, from, path[1:])
		if !changed {
			return have, false
		}
		value = JSON(inner)
	}
	if before, there := have[path[0]]; there && sameJSON(before, value) {
		return have, false
	}
	if have == nil {
		have = map[string]json.RawMessage{}
	}
	have[path[0]] = value
	return have, true
}
