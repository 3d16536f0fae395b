package main

import (
	"path/filepath"
	"slices"
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
			t.Errorf("%s: its name is taken, or it has no text, or no test is to catch it", m.name)
		}
		names[m.name] = true
		if _, err := chaostest.Overlay(root, t.TempDir(), m.overlaid()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// The one whose package has the fewest that import it, since they are all compiled: make mutants does it with all.
func TestOneIsCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{root: root, dir: t.TempDir(), parallel: 1}
	m := mutants[slices.IndexFunc(mutants, func(m mutant) bool { return m.name == "period-in-utc" })]
	for _, d := range m.caught {
		c, err := d.find(t.Context(), b, m.overlaid())
		if err != nil || !c.Caught {
			t.Errorf("%s survived: %v, %v", m.name, c, err)
		}
	}
}
