package storetest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// apart are the methods that are not compared, with the reason.
var apart = map[string]string{
	"JournalPart":       "is Journal within a time; the case Journal is about it",
	"Subscribe":         "hints may be missing; the case SubscribeHints is about them",
	"CountUpTo":         "how far a store looks within a bound is its own; Count is compared",
	"SetEnvironment":    "is about programs; the case OfEnvironment is about it",
	"RecordEnvironment": "as SetEnvironment",
	"Holders":           "is made of List and of heartbeats, which are compared",
	"Moved":             "is about where a database is; a test of Postgres moves one",
	"Journal":           "a database may leave out numbers of entries; the case Journal is about it",
	"LockStore":         "is the store itself, for package locks, whose calls are compared",
}

// Every method of a ledger is an action of the comparison, and every method of a store is
// called by one of them.
func TestCompareCallsAll(t *testing.T) {
	harness := calls(t, "compare*.go", "l")
	for m := range reflect.TypeFor[*ledger.Ledger]().Methods() {
		if called, reason := harness[m.Name], apart[m.Name]; called == (reason != "") {
			t.Errorf("Ledger.%s: compared: %v; kept apart because %q", m.Name, called, reason)
		}
	}
	rules, direct := calls(t, "../*.go", "store"), calls(t, "compare*.go", "s")
	for m := range reflect.TypeFor[ledger.Store]().Methods() {
		if !rules[m.Name] && !direct[m.Name] {
			t.Errorf("Store.%s is called neither by package ledger nor by the comparison", m.Name)
		}
	}
}

// calls returns the methods that files call on a variable or field of this name: l, m.l[i], r.l.
func calls(t *testing.T, pattern, name string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatal(pattern, err)
	}
	found := map[string]bool{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must.OK(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if method, ok := call.Fun.(*ast.SelectorExpr); ok && lastName(method.X) == name {
					found[method.Sel.Name] = true
				}
			}
			return true
		})
	}
	return found
}

// lastName is the name at the end of a.b, b or a.b[i].
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.IndexExpr:
		return lastName(e.X)
	}
	return ""
}
