package ledgerd

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestTour: each function or type that docs/tour.md names is declared in the file that it links to, and each path
// of its table is there.
func TestTour(t *testing.T) {
	text, err := os.ReadFile("docs/tour.md")
	must.OK(t, err)
	declared := map[string]map[string]bool{} // names by file
	for _, s := range sources(t) {
		names := map[string]bool{}
		for _, decl := range s.tree.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok {
						names[typ.Name.Name] = true
					}
				}
			}
		}
		declared[s.path] = names
	}
	links := regexp.MustCompile("\\[`(\\w+)`\\]\\(\\.\\./([^)]+)\\)").FindAllStringSubmatch(string(text), -1)
	if len(links) < 15 {
		t.Errorf("%d names, want a tour", len(links))
	}
	for _, link := range links {
		if name, file := link[1], link[2]; !declared[filepath.ToSlash(file)][name] {
			t.Errorf("%s declares no %s", file, name)
		}
	}
	_, table, _ := strings.Cut(string(text), "## Where do I change")
	for _, code := range regexp.MustCompile("`([a-z]+/[\\w./]*)`").FindAllStringSubmatch(table, -1) {
		if _, err := os.Stat(strings.Replace(code[1], "NAME", "urlcheck", 1)); err != nil {
			t.Error(err)
		}
	}
}
