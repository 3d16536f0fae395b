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

// A paused kind waits for somebody to resume it, not for a worker.
func TestPausedFindings(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	counts := []ledger.Counts{{Kind: "empty"}, {Kind: "idle", Ready: 2, OldestReady: long}, {Kind: "paused", Ready: 150, OldestReady: time.Now()}}
	var got []string
	for _, f := range unworked(counts, []ledger.Kind{{Name: "idle"}, {Name: "paused", Paused: true}, {Name: "empty", Paused: true}}, nil, func(string) string { return "" }) {
		got = append(got, f.What+"; "+f.Fix)
	}
	want := []string{
		"2 items of kind idle ready, the first since 1h0m0s, and no program works it; ledgerd work --kind idle",
		"kind paused is paused, and 150 items of it ready; ledgerd kind resume paused",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
