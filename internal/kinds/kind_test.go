package kinds

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

func TestSettingError(t *testing.T) {
	s, err := settings.Compile([]byte(`{"type":"object","properties":{"delimiter":{"type":"string"},` +
		`"rows":{"type":"integer"}},"additionalProperties":false}`))
	must.OK(t, err)
	given := []string{"delimeter=;"}
	_, err = s.Parse(nil, given)
	f := failure.Explain(settingError(err, "filecsv", flagValues{"payload", "--set", given}, flagFields{}))
	if diff := cmp.Diff([]any{failure.ExitUsage, `filecsv has no payload field "delimeter" (--set delimeter=;)`,
		"did you mean delimiter?   fields: ledgerd run filecsv --help"},
		[]any{f.Exit, f.Message, f.Hint}); diff != "" {
		t.Error(diff)
	}
	_, err = s.Parse(nil, []string{"rows=many"})
	f = failure.Explain(settingError(err, "filecsv", flagValues{"payload", "--set", given}, flagFields{}))
	if f.Message != `filecsv: rows: must be a whole number, not "many"` {
		t.Error(f.Message)
	}
}
