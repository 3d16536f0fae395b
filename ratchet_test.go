package ledgerd

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// ratchet holds figures that may only fall: each is a cost that every reader pays, and grows by itself. A change that
// lowers one lowers its number here. One that raises one raises its number, and its commit message gives the reason.
// Names and single words are held by the tests beside this one.
var ratchet = map[string]int{
	"lines of Go, without tests":                    99833,
	"lines of Go in tests":                          80600,
	"lines of the command line":                     14630,
	"methods of ledger.Store":                       42,
	"comments with a clause that begins with which": 1,
	"words of the documents":                        57033,
	"words of the README":                           899,
}

// slack is how far below its number a figure may be before the number has to be lowered.
const slack = 0.01

func TestRatchet(t *testing.T) {
	have := map[string]int{}
	clause := regexp.MustCompile(`, (which|who|whose|whom)\b`)
	for _, s := range sources(t) {
		switch {
		case s.generated:
			continue
		case s.inTests:
			have["lines of Go in tests"] += s.lines
		default:
			have["lines of Go, without tests"] += s.lines
			if in(s.folder, "internal/cli") {
				have["lines of the command line"] += s.lines
			}
		}
		for _, group := range s.tree.Comments {
			if clause.MatchString(strings.ReplaceAll(group.Text(), "\n", " ")) {
				have["comments with a clause that begins with which"]++
			}
		}
		if s.folder == "ledger" && !s.inTests {
			have["methods of ledger.Store"] += methodsOf(s.tree, "Store")
		}
	}
	generated := []string{"docs/cli.md", "docs/config.md", "docs/api.md"}
	for _, pattern := range []string{"docs/*.md", "docs/plugins/*.md", "examples/*/README.md"} {
		pages, err := filepath.Glob(pattern)
		must.OK(t, err)
		for _, page := range pages {
			if !slices.Contains(generated, page) {
				have["words of the documents"] += words(t, page)
			}
		}
	}
	have["words of the README"] = words(t, "README.md")
	for name, most := range ratchet {
		switch n := have[name]; {
		case n > most:
			t.Errorf("%s: %d, at most %d; see ratchet", name, n, most)
		case float64(n) < float64(most)*(1-slack):
			t.Errorf("%s: %d; lower the number of ratchet, which is %d", name, n, most)
		}
	}
}

// methodsOf counts the methods of an interface, and those of the interfaces in it that the file declares.
func methodsOf(file *ast.File, name string) (n int) {
	for _, decl := range file.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			declared, ok := spec.(*ast.TypeSpec)
			if !ok || declared.Name.Name != name {
				continue
			}
			if i, ok := declared.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					if embedded, ok := m.Type.(*ast.Ident); ok {
						n += methodsOf(file, embedded.Name)
					} else {
						n += len(m.Names)
					}
				}
			}
		}
	}
	return n
}

func words(t *testing.T, page string) int {
	t.Helper()
	text, err := os.ReadFile(page)
	must.OK(t, err)
	return len(strings.Fields(string(text)))
}
