package postgres

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// templates are all SQL strings of this package and of the package that the stores share, by their position. Parts that
// are joined by name are replaced by "…".
func templates(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	set := token.NewFileSet()
	files, err := filepath.Glob("*.go")
	shared, err2 := filepath.Glob("../internal/sqlstore/*.go")
	must.OK(t, errors.Join(err, err2))
	keyword := regexp.MustCompile(`\b(SELECT|UPDATE|INSERT|DELETE|FROM|WHERE)\b`)
	for _, name := range append(files, shared...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		must.OK(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, whole := joined(t, e)
			if keyword.MatchString(text) {
				found[set.Position(e.Pos()).String()] = text
			}
			return !whole
		})
	}
	if len(found) < 20 {
		t.Fatalf("only %d statements found", len(found))
	}
	return found
}

// joined is the text of a string, or of strings joined by +; whole: it is one of these.
func joined(t *testing.T, e ast.Expr) (text string, whole bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		must.OK(t, err)
		return text, true
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		x, isX := joined(t, e.X)
		y, isY := joined(t, e.Y)
		if !isX {
			x = "…"
		}
		if !isY {
			y = "…"
		}
		return x + y, isX || isY
	}
	return "", false
}

// The rules that keep plans good on stale statistics; each was paid for with a slow drain.
func TestStatementsKeepTheRules(t *testing.T) {
	bareTable := regexp.MustCompile(
		`(^|[^.\w])ledger_(items|backlog|leases|attempts|kinds|agents|locks|journal|meta)\b(?:[^.]|$)`)
	bareClock := regexp.MustCompile(`[<>=]\s*\{\{NOW\}\}`)
	outer := regexp.MustCompile(`(?s)\b(UPDATE|DELETE FROM) \{\{S\}\}\.ledger_backlog\b(.*)`)
	for at, sql := range templates(t) {
		if bareTable.MatchString(sql) && !strings.Contains(sql, "grant this user") && !strings.Contains(sql, "INDEXED BY") {
			t.Errorf("%s: a table without its schema:\n%s", at, sql)
		}
		if where := strings.SplitN(sql, "WHERE", 2); len(where) == 2 && bareClock.MatchString(where[1]) {
			t.Errorf("%s: the clock in a condition must be (SELECT {{NOW}}), or no index serves it:\n%s", at, sql)
		}
		if m := outer.FindStringSubmatch(sql); m != nil {
			if where := outerWhere(m[2]); strings.Contains(where, "state") || strings.Contains(where, "due_at") ||
				strings.Contains(where, "expires_at") {
				t.Errorf("%s: outside of the sub-select that picks rows, a condition must not make partial indexes eligible: %q",
					at, where)
			}
		}
		if regexp.MustCompile(`(?i)\bIN \(\s*SELECT[^)]*LIMIT`).MatchString(sql) {
			t.Errorf("%s: IN (SELECT … LIMIT) may run again and take more than the limit:\n%s", at, sql)
		}
		if strings.Contains(strings.ToUpper(sql), " LIKE ") {
			t.Errorf("%s: LIKE gives characters of the user's text a meaning:\n%s", at, sql)
		}
	}
}

// outerWhere is the condition of a statement without what is in parentheses.
func outerWhere(s string) string {
	var flat strings.Builder
	depth := 0
	for _, r := range s {
		switch {
		case r == '(':
			depth++
		case r == ')' && depth == 0: // the end of the CTE
			r = 0
		case r == ')':
			depth--
		}
		if r == 0 {
			break
		}
		if depth == 0 {
			flat.WriteRune(r)
		}
	}
	_, where, _ := strings.Cut(flat.String(), "WHERE")
	where, _, _ = strings.Cut(where, "RETURNING")
	return where
}
