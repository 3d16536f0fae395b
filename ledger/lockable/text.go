package lockable

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// quote quotes a name for both databases; it may have any characters.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoteAll(names []string) []string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return quoted
}

// marks are strings, quoted names and placeholders. A numbered placeholder would take an argument of this package.
var marks = regexp.MustCompile(`'[^']*'|"[^"]*"|[?$][0-9]+|\?`)

// checkMarks checks that SQL of the user has as many placeholders as there are arguments.
func checkMarks(field, sql string, args int) error {
	n := 0
	for _, m := range marks.FindAllString(sql, -1) {
		if m == "?" {
			n++
		} else if m[0] == '?' || m[0] == '$' {
			return invalid(field, "%s: placeholders are ? without a number", sql)
		}
	}
	if n != args {
		return invalid(field, "%s: has %d placeholders (? outside of '…' and \"…\"), and there are %d Args for it", sql, n, args)
	}
	return nil
}

// params are the arguments of one statement, numbered so that a text may stand in it several times.
type params struct {
	prefix string // of a number: $ or ?
	args   []any
}

func (p *params) add(v any) string {
	p.args = append(p.args, v)
	return fmt.Sprint(p.prefix, len(p.args))
}

// fill is SQL of the user with its arguments as numbered parameters.
func (p *params) fill(sql string, args []any) string {
	return marks.ReplaceAllStringFunc(sql, func(m string) string {
		if m == "?" {
			m, args = p.add(args[0]), args[1:]
		}
		return m
	})
}

// each writes one text per name, with commas between; % stands for the name. The text is one of this package's own.
func each(names []string, text string) string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = strings.ReplaceAll(text, "%", n)
	}
	return strings.Join(all, ", ")
}

func invalid(field, format string, args ...any) error {
	return &ledger.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
