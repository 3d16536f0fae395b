package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/ledger"
)

// A kind to which an agent gives nothing has a plugin that crashes there if the agent works it, and one that does
// not start if it does not. What is over is no finding.
func TestStalledFindings(t *testing.T) {
	soon := time.Now().Add(time.Minute)
	var got []string
	for _, f := range stalled([]ledger.Agent{{
		Name: "box/1/abc", Kinds: map[string]string{"crashes": "d", "well": "d"},
		Stalled: map[string]time.Time{"crashes": soon, "away": soon, "well": time.Now().Add(-time.Minute)},
	}}) {
		got = append(got, string(f.Level)+" "+f.Check+": "+f.What)
	}
	want := []string{
		"warning kind: kind away is not worked by box/1/abc: its plugin does not start there",
		"warning breaker: the plugin of kind crashes crashes again and again on box/1/abc",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
