// Package payload has functions for the payloads of items: defaults of their fields, one payload over another, and a
// check for lone surrogates. Payloads are JSON by convention.
package payload

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Defaults are what commands put into the payload of new items of a kind where no other source gives it: by
// field, with dots for nesting. The ledger itself adds none of it to any item.
type Defaults map[string]Default

// Default is the default of one field.
type Default struct {
	Value json.RawMessage `json:"value"` // of the newest command, or of an operator
	// Kept means that an operator has set it: what commands give does not change it.
	Kept bool `json:"kept,omitempty"`
	// Varied means that commands have given different values, so none of them is a default.
	Varied bool `json:"varied,omitempty"`
}

// Remember records the fields that a command has given, by their dotted names. A field that an earlier command gave
// with another value loses its default, unless an operator has set the default. An object is given as a whole: fields
// of it that are missing now count as given with another value.
func (d Defaults) Remember(given map[string]json.RawMessage) Defaults {
	flat := make(Defaults, len(given))
	for name, value := range given {
		flat[name] = Default{Value: value}
	}
	added, out := flat.Flat(), d.Flat()
	if out == nil && len(added) > 0 {
		out = Defaults{}
	}
	for name, have := range out {
		if _, again := added[name]; again || have.Kept {
			continue
		}
		for whole := range given {
			have.Varied = have.Varied || strings.HasPrefix(name, whole+".")
		}
		out[name] = have
	}
	for name, now := range added {
		have, known := out[name]
		if have.Kept {
			continue
		}
		out[name] = Default{Value: now.Value, Varied: have.Varied || known && !sameJSON(have.Value, now.Value)}
	}
	return out.Flat()
}

// Flat names each value by its path, so that no field is there twice: {"types": {"age": "int"}} becomes types.age. If
// there are an object and one of its fields, the field counts. An object stays one value if it is empty, or if one of
// its names cannot be part of a path.
func (d Defaults) Flat() Defaults {
	if d == nil {
		return nil
	}
	out := Defaults{}
	for _, name := range slices.Sorted(maps.Keys(d)) {
		out.put(name, d[name])
	}
	maps.DeleteFunc(out, func(name string, def Default) bool {
		return sameJSON(def.Value, []byte("{}")) && out.hasFieldOf(name)
	})
	return out
}

// put adds the values of a default by their paths.
func (d Defaults) put(name string, def Default) {
	var object map[string]json.RawMessage
	noPath := func(key string) bool { return key == "" || strings.ContainsAny(key, ".:=") }
	if json.Unmarshal(def.Value, &object) != nil || len(object) == 0 ||
		slices.ContainsFunc(slices.Collect(maps.Keys(object)), noPath) {
		d[name] = def
		return
	}
	for key, value := range object {
		def.Value = value
		d.put(name+"."+key, def)
	}
}

// hasFieldOf reports whether there is a default of a field of an object.
func (d Defaults) hasFieldOf(object string) bool {
	for name := range d {
		if strings.HasPrefix(name, object+".") {
			return true
		}
	}
	return false
}

// Fields returns the fields that have a default, and the fields that a command has to give, both by name. With
// keptOnly, only defaults that an operator has set count.
func (d Defaults) Fields(keptOnly bool) (have, varied []string) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		switch def := d[name]; {
		case !def.Kept && keptOnly:
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
