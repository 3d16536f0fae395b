package payload

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// Over returns payload with these fields replaced by the ones in other; names have dots for nesting. If payload or
// other is no JSON object, it returns other.
func Over(payload, other []byte, fields []string) []byte {
	var have, want map[string]json.RawMessage
	if json.Unmarshal(other, &want) != nil || len(payload) > 0 && json.Unmarshal(payload, &have) != nil {
		return other
	}
	changed := false
	for _, name := range fields {
		var copied bool
		have, copied = copyField(have, want, strings.Split(name, "."))
		changed = changed || copied
	}
	if !changed {
		return payload
	}
	return marshal(have)
}

// copyField copies the value at a path of want, if there is one, into have. It reports whether that changed have.
func copyField(have, want map[string]json.RawMessage, path []string) (map[string]json.RawMessage, bool) {
	value, given := want[path[0]]
	if !given {
		return have, false
	}
	if len(path) > 1 {
		var haveInner, wantInner map[string]json.RawMessage
		if json.Unmarshal(value, &wantInner) != nil {
			return have, false
		}
		_ = json.Unmarshal(have[path[0]], &haveInner) // nil if have has no object there
		inner, changed := copyField(haveInner, wantInner, path[1:])
		if !changed {
			return have, false
		}
		value = marshal(inner)
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

// marshal writes an object whose values are JSON.
func marshal(object map[string]json.RawMessage) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic("payload: " + err.Error())
	}
	return text
}

// sameJSON compares two values; the order of names in them does not matter.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return decodeNumbers(a, &x) == nil && decodeNumbers(b, &y) == nil && reflect.DeepEqual(x, y)
}

// decodeNumbers decodes JSON and keeps the text of numbers.
func decodeNumbers(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}
