//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/chaostest"
	"github.com/ledgerd/ledgerd/internal/must"
)

// Each patch fits the source, and the invariant and the test that a planted bug names exist.
func TestPatchesFit(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.OK(t, err)
	documents := textOf(t, filepath.Join(root, "docs/*.md"))
	suite := textOf(t, filepath.Join(root, "ledger/storetest/*.go"))
	word := regexp.MustCompile(`\w+`)
	names := map[string]bool{}
	for _, m := range mutants {
		if !strings.Contains(documents, "\n| "+m.invariant+" |") && !strings.Contains(documents, "`"+m.invariant+"` (") {
			t.Errorf("%s: no document has the invariant %s", m.name, m.invariant)
		}
		for _, d := range m.caught {
			d, ok := d.(tests)
			if !ok {
				continue
			}
			have := word.FindAllString(suite+textOf(t, filepath.Join(root, d.folder, "*_test.go")), -1)
			for _, name := range word.FindAllString(d.pattern, -1) {
				if !slices.Contains(have, name) {
					t.Errorf("%s: there is no test %s in %s", m.name, name, d.folder)
				}
			}
		}
		if names[m.name] || m.bug == "" || len(m.caught) == 0 {
			t.Errorf("%s: its name is taken, or it has no text, or no test is to catch it", m.name)
		}
		names[m.name] = true
		if _, err := chaostest.Overlay(root, t.TempDir(), m.overlay()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// textOf returns the text of all files whose names match a pattern.
func textOf(t *testing.T, pattern string) (all string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.OK(t, err)
		all += string(text)
	}
	if err != nil || all == "" {
		t.Fatalf("%s: %v", pattern, err)
	}
	return all
}

// One planted bug is caught; make mutants plants all. Few packages import the package of this bug, and all that do are
// compiled again.
func TestOneIsCaught(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.OK(t, err)
	b := &bench{root: root, dir: t.TempDir(), parallel: 1}
	m := mutants[slices.IndexFunc(mutants, func(m mutant) bool { return m.name == "period-in-utc" })]
	for _, d := range m.caught {
		c, err := d.find(t.Context(), b, m.overlay())
		if err != nil || !c.Caught {
			t.Errorf("%s survived: %v, %v", m.name, c, err)
		}
	}
}
