package payload

import (
	"bytes"
	"encoding/json"
	"fmt"
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
		var put bool
		if have, put = give(have, want, strings.Split(name, ".")); put {
			changed = true
		}
	}
	if !changed {
		return payload
	}
	return marshal(have)
}

// give copies the value at a path of want, if there is one, into have. It reports whether that changed have.
func give(have, want map[string]json.RawMessage, path []string) (map[string]json.RawMessage, bool) {
	value, given := want[path[0]]
	if !given {
		return have, false
	}
	if len(path) > 1 {
		var haveInner, wantInner map[string]json.RawMessage
		if json.Unmarshal(value, &wantInner) != nil {
			return have, false
		}
		if json.Unmarshal(have[path[0]], &haveInner) != nil { // have has no value there, or no object
			haveInner = nil
		}
		inner, changed := give(haveInner, wantInner, path[1:])
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
	return decodeNumbers(a, &x) == nil && decodeNumbers(b, &y) == nil && fmt.Sprintf("%#v", x) == fmt.Sprintf("%#v", y)
}

// decodeNumbers decodes JSON and keeps the text of numbers.
func decodeNumbers(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}
