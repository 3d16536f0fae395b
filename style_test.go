package ledgerd

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/must"
)

func TestSizes(t *testing.T) {
	const maxFile, maxFunction, maxTest = 500, 100, 120 // a test may hold a table
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		if s.lines > maxFile {
			t.Errorf("%s has %d lines; at most %d", s.path, s.lines, maxFile)
		}
		for _, decl := range s.tree.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			from, to := s.set.Position(f.Pos()), s.set.Position(f.End())
			most := maxFunction
			if s.inTests {
				most = maxTest
			}
			if lines := to.Line - from.Line + 1; lines > most {
				t.Errorf("%s: %s has %d lines; at most %d", from, f.Name.Name, lines, most)
			}
		}
	}
}

// Lines have at most 120 characters, except those that hold a raw string (SQL, tags, pages) or a long literal.
func TestWidth(t *testing.T) {
	const most, longLiteral = 120, 40
	for _, s := range sources(t) {
		if s.generated {
			continue
		}
		quoted := map[int]bool{}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING &&
				(lit.Value[0] == '`' || len(lit.Value) > longLiteral) {
				for line := s.set.Position(lit.Pos()).Line; line <= s.set.Position(lit.End()).Line; line++ {
					quoted[line] = true
				}
			}
			return true
		})
		text, err := os.ReadFile(s.path)
		must.OK(t, err)
		line := 0
		for content := range strings.Lines(string(text)) {
			line++
			if width := utf8.RuneCountInString(strings.TrimSuffix(content, "\n")); width > most && !quoted[line] &&
				!strings.Contains(content, "//nolint") && !strings.Contains(content, "//go:") {
				t.Errorf("%s:%d has %d characters; at most %d", s.path, line, width, most)
			}
		}
	}
}

// Habits of comments that stop readers whose first language is another one: each has a plain word.
var habits = map[string]*regexp.Regexp{
	`"says": write "reports whether", "means", "returns" or the plain noun`: regexp.MustCompile(`\bsays\b`),
	`"nobody": write "no process", "no program", "no caller"`:               regexp.MustCompile(`\b[Nn]obody\b`),
	`a clause without a head: begin with the subject`:                       regexp.MustCompile(`^// (Who|Whoever|Whatever) [^?]*$`),
}

// A comment or a string with such a word because it is a name.
var named = map[string]string{
	"internal/pgtest/cluster/doc.go":  "nobody is a user",
	"internal/pgtest/cluster/find.go": "nobody is a user",
	"ledger/postgres/examine.go":      "nobody is a user",
	"ledger/sqlite/open_test.go":      "nobody is a user",
	"style_test.go":                   "the habits themselves",
}

func TestCommentsArePlain(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated || named[s.path] != "" {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool { // what users read is plain, too
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !s.inTests {
				for advice, habit := range habits {
					if habit.MatchString(lit.Value) {
						t.Errorf("%s: %s: %s", s.set.Position(lit.Pos()), advice, lit.Value)
					}
				}
			}
			return true
		})
		for _, group := range s.tree.Comments {
			for _, c := range group.List {
				for advice, habit := range habits {
					if habit.MatchString(c.Text) {
						t.Errorf("%s: %s: %s", s.set.Position(c.Pos()), advice, c.Text)
					}
				}
			}
		}
	}
}

// A condition is an if or a switch. A map of true and false that is read at once hides it.
func TestConditionsArePlain(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.tree, func(n ast.Node) bool {
			index, ok := n.(*ast.IndexExpr)
			if !ok || s.inTests {
				return true
			}
			if lit, ok := index.X.(*ast.CompositeLit); ok {
				if of, ok := lit.Type.(*ast.MapType); ok {
					if key, ok := of.Key.(*ast.Ident); ok && key.Name == "bool" {
						t.Errorf("%s: a map of bool in the place of a condition: use if or switch", s.set.Position(n.Pos()))
					}
				}
			}
			return true
		})
	}
}

// A program that embeds a ledger reads package ledger first, so its face stays small: every exported name is one more
// thing to look through. A size, a figure or a text form has a package of its own beside it. A name that only one
// program uses belongs to that program. The constants of a type do not count, so an enumeration may grow. Lower the
// number when the face gets smaller.
func TestFaceOfLedgerIsSmall(t *testing.T) {
	const most = 100
	var names []string
	add := func(name *ast.Ident) {
		if name.IsExported() {
			names = append(names, name.Name)
		}
	}
	for _, s := range sources(t) {
		if s.folder != "ledger" || s.inTests {
			continue
		}
		for _, decl := range s.tree.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name)
					case *ast.ValueSpec:
						if d.Tok == token.CONST && (spec.Type != nil || spec.Values == nil) {
							continue // a constant of a type, such as an outcome
						}
						for _, name := range spec.Names {
							add(name)
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	if len(names) > most {
		t.Errorf("package ledger has %d exported names, at most %d: %s", len(names), most, strings.Join(names, " "))
	}
	if len(names) < most/2 {
		t.Errorf("found only %d exported names in package ledger; this test has lost its object", len(names))
	}
}
