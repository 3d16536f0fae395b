package answer_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger/filter"
)

func TestDated(t *testing.T) {
	for text, want := range map[string]bool{"": false, "kind:a state:dead": false, "since:1h": true, "until:2d": true,
		"kind:a until:2d": true} {
		f, err := filter.Parse(text, time.Now())
		must.OK(t, err)
		if got := answer.Dated(f); got != want {
			t.Errorf("%q: %v", text, got)
		}
		if got := answer.Dated(f.And(answer.Failing(time.Time{}))); got != want {
			t.Errorf("%q and failures: %v", text, got)
		}
	}
}
