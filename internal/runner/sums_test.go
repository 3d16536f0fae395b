package runner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

func TestSums(t *testing.T) {
	schema, err := settings.Compile([]byte(`{"type": "object", "properties": {
		"bad": {"type": "integer", "x-ledgerd-sum": true}, "rows": {"type": "integer"}, "name": {"type": "string"},
		"in": {"type": "object", "properties": {"warnings": {"type": "number", "x-ledgerd-sum": true}}}}}`))
	must.OK(t, err)
	s := NewSums(schema)
	for _, output := range []string{`{"bad": 1000, "rows": 9, "in": {"warnings": 2}}`, `{"bad": 234}`, `{"in": 1}`,
		`"text"`, ``, `{"bad": "x"}`} {
		s.Add([]byte(output))
	}
	if diff := cmp.Diff([]string{"bad 1,234", "in.warnings 2"}, s.Parts()); diff != "" {
		t.Error(diff)
	}
}
