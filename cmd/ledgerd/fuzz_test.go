package main

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger/recurrence"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Both parsers of durations, that of flags and filters and that of settings, read the same texts as the same durations.
func FuzzDurations(f *testing.F) {
	for _, s := range []string{"90s", "7d", "2w", "1w1d", "1d12h", "1.5h", "0", "1h1d", "00d", "36600d", "-1d", "+1h",
		".5h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, aerr := recurrence.ParseDuration(s)
		b, berr := settings.ParseDuration(s)
		if aerr == nil && berr == nil && a != b {
			t.Errorf("%q is %v here and %v there", s, a, b)
		}
	})
}
