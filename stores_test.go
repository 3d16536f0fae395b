package ledgerd

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"testing"
)

// A method that both stores have lies in files of the same name.
func TestStoresLieAlike(t *testing.T) {
	lies := map[string]map[string]string{"ledger/sqlite": {}, "ledger/postgres": {}}
	for _, s := range sources(t) {
		for _, decl := range s.tree.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || s.inTests || lies[s.folder] == nil || f.Recv == nil || !f.Name.IsExported() {
				continue
			}
			of := f.Recv.List[0].Type
			if pointer, ok := of.(*ast.StarExpr); ok {
				of = pointer.X
			}
			if of, ok := of.(*ast.Ident); ok && (of.Name == "Store" || of.Name == "tx") {
				lies[s.folder][of.Name+"."+f.Name.Name] = path.Base(s.path)
			}
		}
	}
	both := 0
	for method, file := range lies["ledger/sqlite"] {
		other := lies["ledger/postgres"][method]
		if other != "" {
			both++
		}
		if other != "" && other != file {
			t.Errorf("%s lies in %s of one store and in %s of the other", method, file, other)
		}
	}
	if both < 10 {
		t.Errorf("the stores have only %d methods in common; this test has lost its object", both)
	}
}

// Package ledger/internal/code names the numbers that the databases keep for states and outcomes.
func TestStatementsNameTheirCodes(t *testing.T) {
	bare := regexp.MustCompile(`\b(state|outcome|gate)\b(\)? *(=|<>|[<>]=?|IN|NOT IN) *\(?|, )\d`)
	strings := 0
	for _, s := range sources(t) {
		if s.inTests || !in(s.folder, "ledger") {
			continue
		}
		ast.Inspect(s.tree, func(node ast.Node) bool {
			if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING {
				strings++
				if found := bare.FindString(text.Value); found != "" {
					t.Errorf("%s: %q has a number without a name; take that of ledger/internal/code", s.set.Position(text.Pos()),
						found)
				}
			}
			return true
		})
	}
	if strings < 100 {
		t.Errorf("found only %d strings; this test has lost its object", strings)
	}
}
