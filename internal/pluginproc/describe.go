package pluginproc

import (
	"encoding/json"
	"fmt"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Limits of a description: it is kept in memory and shown to people.
const (
	MaxDoc    = 64 << 10 // bytes of the documentation
	MaxSchema = 1 << 20  // bytes of a schema
	MaxFields = 1000     // of a schema at its top level
	MaxField  = 128      // bytes of the name of a field
	MaxNames  = 1000     // kinds that it emits, secrets, patterns, features; each
)

// CheckDescription returns an error if a description exceeds one of the limits.
func CheckDescription(r *wire.DescribeResponse) error {
	if len(r.Doc) > MaxDoc {
		return fmt.Errorf("its documentation has %d bytes, at most %d", len(r.Doc), MaxDoc)
	}
	for what, text := range map[string]string{"name": r.Name, "version": r.Version, "sdk": r.Sdk} {
		if len(text) > MaxField {
			return fmt.Errorf("its %s has %d bytes, at most %d", what, len(text), MaxField)
		}
	}
	for what, names := range map[string][]string{"emits": r.Emits, "secrets": r.Secrets, "match": r.Match,
		"features": r.Features} {
		if len(names) > MaxNames {
			return fmt.Errorf("its %s has %d entries, at most %d", what, len(names), MaxNames)
		}
	}
	for what, schema := range map[string][]byte{"input": r.InputSchema, "config": r.ConfigSchema,
		"output": r.OutputSchema} {
		if err := checkSchemaSize(schema); err != nil {
			return fmt.Errorf("its %s schema %w", what, err)
		}
	}
	return nil
}

func checkSchemaSize(schema []byte) error {
	if len(schema) > MaxSchema {
		return fmt.Errorf("has %d bytes, at most %d", len(schema), MaxSchema)
	}
	var top struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &top) != nil {
		return nil // the caller that compiles the schema reports what is wrong with it
	}
	if n := len(top.Properties); n > MaxFields {
		return fmt.Errorf("has %d fields, at most %d", n, MaxFields)
	}
	for name := range top.Properties {
		if len(name) > MaxField {
			return fmt.Errorf("has a field whose name has %d bytes, at most %d", len(name), MaxField)
		}
	}
	return nil
}
