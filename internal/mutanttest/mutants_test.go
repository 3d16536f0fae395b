//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
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

// All patches together compile. Only the patched packages are checked; their imports come from the build cache.
func TestPatchesCompile(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.OK(t, err)
	var patches []chaostest.Patch
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles")
	list.Dir = root
	for _, m := range mutants {
		for _, p := range m.overlay() {
			if p.In != "" { // a file that is no Go has no declarations
				patches, list.Args = append(patches, p), append(list.Args, "./"+p.Package)
			}
		}
	}
	path, err := chaostest.Overlay(root, t.TempDir(), patches)
	must.OK(t, err)
	text, err := os.ReadFile(path)
	must.OK(t, err)
	var overlay struct{ Replace map[string]string }
	must.OK(t, json.Unmarshal(text, &overlay))
	text, err = list.Output()
	must.OK(t, err)
	exports := map[string]string{}
	set := token.NewFileSet()
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); { // a package comes after its imports
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		must.OK(t, d.Decode(&p))
		exports[p.ImportPath] = p.Export
		var files []*ast.File
		patched := false
		for _, name := range p.GoFiles {
			file := filepath.Join(p.Dir, name)
			if to := overlay.Replace[file]; to != "" {
				file, patched = to, true
			}
			if !strings.HasPrefix(p.Dir, root) {
				break
			}
			parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
			must.OK(t, err)
			files = append(files, parsed)
		}
		if !patched {
			continue
		}
		check := types.Config{Importer: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
			return os.Open(exports[path])
		})}
		if _, err := check.Check(p.ImportPath, set, files, nil); err != nil {
			t.Errorf("with all patches: %v", err)
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
		if err != nil || !c.caught {
			t.Errorf("%s survived: %v, %v", m.name, c, err)
		}
	}
}
