package kinds

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
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

// TestPolicyFindings: the hint is a command that gives the ledger the value of the config.
func TestPolicyFindings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledgerd.toml")
	must.OK(t, os.WriteFile(file, []byte("[kinds.mail]\npaused = false\nrate = \"0\"\nmax_failures = 2\n"), 0o600))
	lc := NewLocal(nil)
	var err error
	lc.Config, err = config.Load(config.Options{Path: file})
	must.OK(t, err)
	k := ledger.Kind{Name: "mail", Paused: true}
	k.Limits.Rate = scheduler.Rate{Count: 100, Per: time.Second}
	var got []string
	for _, f := range lc.PolicyFindings([]ledger.Kind{k}) {
		_, command, _ := strings.Cut(f.Fix, "ledgerd kind ")
		got = append(got, command)
	}
	slices.Sort(got)
	if d := cmp.Diff([]string{"resume mail", "set mail --max-failures=2", "set mail --rate=0"}, got); d != "" {
		t.Error(d)
	}
}
