package main

import (
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/chaostest"
)

// A planted bug whose text has moved on would plant nothing.
func TestPatchesFit(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] || m.bug == "" || len(m.caught) == 0 {
			t.Errorf("%s: its name is taken, or it says nothing, or nothing is to catch it", m.name)
		}
		names[m.name] = true
		if _, err := chaostest.Overlay(root, t.TempDir(), m.overlaid()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
