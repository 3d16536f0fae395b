package settings_test

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/sdk/settings"
)

// TestFieldsWithin: an object that may be null has fields like another one, a secret among them. Those of the objects
// in a list are for documents alone.
func TestFieldsWithin(t *testing.T) {
	s := compile(t, `{"type": "object", "properties": {
		"load": {"type": ["object", "null"], "properties": {"table": {"type": "string"}, "password": {"type": "string",
			"writeOnly": true}}},
		"columns": {"type": ["array", "null"], "items": {"type": "object", "properties": {"name": {"type": "string"}}}}}}`)
	names := func(fields []settings.Field) string {
		var all []string
		for _, f := range fields {
			all = append(all, f.Name)
		}
		return strings.Join(all, " ")
	}
	for got, want := range map[string]string{
		names(s.Fields()):              "load.table load.password columns",
		names(s.Described()):           "load.table load.password columns columns[].name",
		strings.Join(s.Secrets(), " "): "load.password",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
