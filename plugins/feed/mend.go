package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	jsonfeed "github.com/mmcdole/gofeed/json"
)

// mendJSON removes the parts of a JSON Feed that the parser cannot read, such as null among the entries or a list
// instead of a text. left is the number of removed parts. A number or a boolean instead of a text becomes a text: the
// format requires that for an id.
func mendJSON(text []byte) (mended []byte, left int) {
	var feed any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&feed) != nil {
		return text, 0 // the parser reports it
	}
	m := mender{}
	if _, ok := m.as(feed, reflect.TypeFor[jsonfeed.Feed]()); !ok || m.left+m.changed == 0 {
		return text, 0
	}
	mended, err := json.Marshal(feed)
	if err != nil { // cannot happen: it was JSON
		return text, 0
	}
	return mended, m.left
}

type mender struct{ left, changed int }

// as converts a value to the type t, in place. It returns false if it cannot.
func (m *mender) as(v any, t reflect.Type) (any, bool) {
	switch t.Kind() {
	case reflect.Pointer:
		return m.as(v, t.Elem())
	case reflect.Struct:
		object, ok := v.(map[string]any)
		for key, value := range object {
			m.field(object, key, value, t)
		}
		return object, ok
	case reflect.Slice:
		list, ok := v.([]any)
		kept := list[:0]
		for _, value := range list {
			if value, ok := m.as(value, t.Elem()); ok {
				kept = append(kept, value)
			} else {
				m.left++
			}
		}
		return kept, ok
	case reflect.String:
		switch v.(type) {
		case string:
			return v, true
		case json.Number, bool:
			m.changed++
			return fmt.Sprint(v), true
		}
	case reflect.Bool:
		_, ok := v.(bool)
		return v, ok
	case reflect.Int64:
		if n, ok := v.(json.Number); ok {
			if _, err := n.Int64(); err == nil {
				return v, true
			}
			if f, err := n.Float64(); err == nil && f > -1e15 && f < 1e15 {
				m.changed++
				return int64(f), true
			}
		}
	}
	return nil, false
}

// field mends or removes a field of an object. A field that is null counts as missing.
func (m *mender) field(object map[string]any, key string, value any, t reflect.Type) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !strings.EqualFold(name, key) || value == nil {
			continue
		}
		if mended, ok := m.as(value, field.Type); ok {
			object[key] = mended
		} else {
			delete(object, key)
			m.left++
		}
	}
}
