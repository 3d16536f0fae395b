package ui

import (
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// TestETAOfAll: the page tells when all is done only if it is known of each kind.
func TestETAOfAll(t *testing.T) {
	minute, hour := 60.0, 3600.0
	known := []answer.KindStats{{Kind: "a", Ready: 1, ETA: &minute}, {Kind: "b", Ready: 1, ETA: &hour}, {Kind: "idle"}}
	if eta := etaOf(known); eta != hour {
		t.Errorf("%v", eta)
	}
	if eta := etaOf(append(known, answer.KindStats{Kind: "paused", Waiting: 1000, Left: 1000})); eta != 0 {
		t.Errorf("%v, though it is unknown of one kind", eta)
	}
}

// TestProblemsOf: items in doubt do not hide that no program works the rest of the kind.
func TestProblemsOf(t *testing.T) {
	for _, tt := range []struct {
		k    answer.KindStats
		want []string
	}{
		{answer.KindStats{Doubt: 1, Ready: 2}, []string{"Decide", "Machines"}},
		{answer.KindStats{Doubt: 1, Ready: 2, Paused: true}, []string{"Decide", "Resume"}},
		{answer.KindStats{Ready: 2, Workers: 1}, nil},
	} {
		all := problemsOf(tt.k, nil)
		if len(all) != len(tt.want) {
			t.Fatalf("%+v: %+v", tt.k, all)
		}
		for i, w := range all {
			if w.Label != tt.want[i] {
				t.Errorf("%+v: %+v, want %s", tt.k, w, tt.want[i])
			}
		}
	}
}
