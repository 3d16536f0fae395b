package settings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Agreed returns a config without its fields marked Tune: the settings that processes that work together must agree on.
func (s *Schema) Agreed(config []byte) (rest json.RawMessage, err error) {
	rest = config
	for _, f := range s.Fields() {
		if !f.Tune {
			continue
		}
		rest, err = edit(rest, strings.Split(f.Name, "."), func(fields map[string]json.RawMessage, last string) error {
			delete(fields, last)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// InForce returns a valid config as people read it: with its defaults, durations in one form, and without its secrets.
func (s *Schema) InForce(config []byte) (json.RawMessage, error) {
	filled, err := s.Fill(config)
	if err != nil {
		return nil, err
	}
	rest, _, err := s.Split(filled)
	if err != nil {
		return nil, err
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(rest))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(durationsAsText(s.root, value))
}

// durationsAsText writes durations as text. Fill has made them nanoseconds. It changes lists and maps in place.
func durationsAsText(at *jsonschema.Schema, value any) any {
	if at == nil {
		return value
	}
	switch v := value.(type) {
	case json.Number:
		if ns, err := v.Int64(); err == nil && at.Format == Duration {
			return FormatDuration(time.Duration(ns))
		}
	case []any:
		for i := range v {
			v[i] = durationsAsText(at.Items, v[i])
		}
	case map[string]any:
		for name := range v {
			field := cmp.Or(at.Properties[name], at.AdditionalProperties)
			v[name] = durationsAsText(field, v[name])
		}
	}
	return value
}
