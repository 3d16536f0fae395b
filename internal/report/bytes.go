package report

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Bytes is a payload or an output in a row: itself if it is JSON, else {"base64": …}.
type Bytes []byte

// MarshalJSON implements json.Marshaler.
func (b Bytes) MarshalJSON() ([]byte, error) {
	switch {
	case len(b) == 0:
		return []byte("null"), nil
	case json.Valid(b):
		return b, nil
	}
	return json.Marshal(map[string][]byte{"base64": b})
}

// UnmarshalJSON implements json.Unmarshaler. It decodes an object whose only member is base64, and keeps other JSON.
func (b *Bytes) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	var decoded []byte
	switch {
	case string(text) == "null":
		*b = nil
	case bytes.IndexByte(text, '\\') < 0 && !bytes.Contains(text, []byte(`"base64"`)): // most JSON, and this is faster
		*b = slices.Clone(text)
	case json.Unmarshal(text, &members) == nil && len(members) == 1 &&
		json.Unmarshal(members["base64"], &decoded) == nil && decoded != nil:
		*b = decoded
	default:
		*b = slices.Clone(text)
	}
	return nil
}

// Exact returns Bytes that are b when they have been encoded, by Marshal or by package json, and decoded: JSON that
// neither changes as it is, all else in base 64.
func Exact(b []byte) Bytes {
	if len(b) == 0 {
		return nil
	}
	compact := bytes.NewBuffer(make([]byte, 0, len(b)))
	if json.Compact(compact, b) == nil && bytes.Equal(compact.Bytes(), b) && !bytes.ContainsAny(b, `<>&\`) &&
		bytes.Equal(escapeJSON(b), b) && string(b) != "null" && !bytes.HasPrefix(b, []byte(`{"base64"`)) {
		return b
	}
	text, _ := json.Marshal(map[string][]byte{"base64": b}) // it cannot fail
	return text
}
