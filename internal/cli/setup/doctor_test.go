package setup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// A stalled kind that the agent works has a plugin that crashes; a stalled kind that it does not work has a plugin that
// does not start. A stall that is over is no finding.
func TestStalledFindings(t *testing.T) {
	soon := time.Now().Add(time.Minute)
	var got []string
	for _, f := range stalled([]ledger.Agent{{
		Name: "box/1/abc", Kinds: map[string]string{"crashes": "d", "well": "d"},
		Stalled: map[string]time.Time{"crashes": soon, "away": soon, "well": time.Now().Add(-time.Minute)},
		Plugins: map[string]health.Plugin{"away": {State: health.Absent, Code: "not_started", Error: "no such program"}},
	}}) {
		got = append(got, string(f.Level)+" "+f.Check+": "+f.What)
	}
	want := []string{
		"warning kind: kind away is not worked by box/1/abc: its plugin does not start there (no such program, )",
		"warning breaker: the plugin of kind crashes crashes again and again on box/1/abc",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// testWorker returns the command that works a kind, as kinds.Local.Worker does.
func testWorker(kind string, k ledger.Kind) (command string, byPlugin bool) {
	if k.Plugin == "" {
		return "ledgerd claim " + kind, false
	}
	return "ledgerd work --kind " + kind, true
}

// A kind that no program works is a problem, even if programs work other kinds. A kind for people is no problem.
func TestUnworkedFindings(t *testing.T) {
	counts := []stats.Counts{{Kind: "convert", Ready: 1}, {Kind: "people", Ready: 1, OldestReady: time.Now()},
		{Kind: "sync", Ready: 3, Waiting: 1, OldestReady: time.Now()}}
	kinds := []ledger.Kind{{Name: "convert", Plugin: "exec"}, {Name: "people"}, {Name: "sync", Plugin: "exec"}}
	live := []ledger.Agent{{Name: "box/1/abc", Kinds: map[string]string{"convert": "d"}}}
	var got []string
	for _, f := range unworked(counts, time.Now(), kinds, nil, live, testWorker) {
		got = append(got, string(f.Level)+" "+f.Check+": "+f.What+"; "+f.Fix)
	}
	want := []string{"problem kinds: no program works kind sync: 3 ready, 1 waiting; ledgerd work --kind sync"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The finding about a paused kind proposes to resume it, not to start a worker.
func TestPausedFindings(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	counts := []stats.Counts{{Kind: "empty"}, {Kind: "idle", Ready: 2, OldestReady: long}, {Kind: "paused", Ready: 150,
		OldestReady: time.Now()}}
	var got []string
	at := time.Date(2026, 11, 22, 2, 10, 0, 0, time.Local)
	pauses := map[string]ledger.JournalEntry{"paused": {Actor: "operator:ann", At: at}}
	for _, f := range unworked(counts, time.Now(), []ledger.Kind{{Name: "idle"}, {Name: "paused", Paused: true},
		{Name: "empty", Paused: true}}, pauses, nil, testWorker) {
		got = append(got, f.What+"; "+f.Fix)
	}
	want := []string{
		"2 items of kind idle ready, the first since 1h0m0s, and no program works it; ledgerd claim idle",
		"kind paused is paused by operator:ann since 2026-11-22 02:10:00: 150 ready; ledgerd kind resume paused",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
