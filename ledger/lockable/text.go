package lockable

import (
	"fmt"
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

// splitName splits the name of a table into schema, "" if it has none, and table. A part in double quotes may contain
// dots, and doubled quotes for quotes. Other parts are taken as they are.
func splitName(name string) (schema, table string, err error) {
	var parts []string
	for rest := name; ; {
		part, after, quoted := rest, "", false
		if strings.HasPrefix(rest, `"`) {
			if part, after, quoted = unquote(rest); !quoted {
				return "", "", invalid("name", "%s: a quote is not closed", name)
			}
		} else if i := strings.IndexByte(rest, '.'); i >= 0 {
			part, after = rest[:i], rest[i:]
		}
		parts = append(parts, part)
		if part == "" || after != "" && after[0] != '.' || len(parts) > 2 {
			return "", "", invalid("name", "%q: must be a table, or schema.table; parts with dots or quotes go in double quotes",
				name)
		}
		if after == "" {
			break
		}
		rest = after[1:]
	}
	if len(parts) == 2 {
		return parts[0], parts[1], nil
	}
	return "", parts[0], nil
}

// unquote reads a name in double quotes and returns what follows it.
func unquote(s string) (name, rest string, closed bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			b.WriteByte(s[i])
		} else if i+1 < len(s) && s[i+1] == '"' {
			b.WriteByte('"')
			i++
		} else {
			return b.String(), s[i+1:], true
		}
	}
	return "", "", false
}

// fragment is SQL of the user, cut at its placeholders.
type fragment struct {
	field string
	parts []string // one more than there are placeholders
}

// newFragment finds the placeholders of SQL outside of strings, quoted names and comments. It refuses text that would
// not stay within the parentheses into which it is put.
func newFragment(field, sql string, postgres bool) (fragment, error) {
	f := fragment{field: field}
	start, depth := 0, 0
	for i := 0; i < len(sql); {
		if n := quotedLen(sql[i:], i > 0 && wordByte(sql[i-1]), postgres); n != 0 {
			if n < 0 {
				return f, invalid(field, "%s: a quote or comment is not closed", sql)
			}
			i += n
			continue
		}
		switch sql[i] {
		case '?':
			if i+1 < len(sql) && sql[i+1] >= '0' && sql[i+1] <= '9' {
				return f, invalid(field, "%s: placeholders are ? without a number", sql)
			}
			f.parts = append(f.parts, sql[start:i])
			start = i + 1
		case '$':
			if i+1 < len(sql) && sql[i+1] >= '0' && sql[i+1] <= '9' && (i == 0 || !wordByte(sql[i-1])) {
				return f, invalid(field, "%s: placeholders are ? without a number", sql)
			}
		case '(':
			depth++
		case ')':
			depth--
		case ';':
			return f, invalid(field, "%s: must be one expression, without ;", sql)
		}
		if depth < 0 {
			break
		}
		i++
	}
	if depth != 0 {
		return f, invalid(field, "%s: its parentheses do not match", sql)
	}
	f.parts = append(f.parts, sql[start:])
	return f, nil
}

// quotedLen returns the length of the string, quoted name or comment at the beginning of s: 0 if there is none, -1 if
// it is not closed. inWord means that the byte before s belongs to a word.
func quotedLen(s string, inWord, postgres bool) int {
	until := func(from int, end string) int {
		if i := strings.Index(s[from:], end); i >= 0 {
			return from + i + len(end)
		}
		return -1
	}
	switch c := s[0]; {
	case c == '\'', c == '"', c == '`' && !postgres: // a doubled quote is the end and a new beginning
		return until(1, string(c))
	case c == '[' && !postgres:
		return until(1, "]")
	case strings.HasPrefix(s, "--"):
		ends := "\n"
		if postgres {
			ends = "\r\n" // either of them
		}
		if i := strings.IndexAny(s, ends); i >= 0 {
			return i + 1
		}
		return len(s)
	case strings.HasPrefix(s, "/*") && postgres:
		return nestedLen(s)
	case strings.HasPrefix(s, "/*"):
		return until(2, "*/")
	case (c == 'E' || c == 'e') && postgres && !inWord && strings.HasPrefix(s[1:], "'"):
		for i := 2; i < len(s); i++ {
			if s[i] == '\\' {
				i++
			} else if s[i] == '\'' {
				return i + 1
			}
		}
		return -1
	case c == '$' && postgres && !inWord:
		i := 1
		for i < len(s) && wordByte(s[i]) {
			i++
		}
		if i < len(s) && s[i] == '$' && (i == 1 || s[1] < '0' || s[1] > '9') {
			return until(i+1, s[:i+1])
		}
	}
	return 0
}

// nestedLen returns the length of the comment at the beginning of s, -1 if it is not closed. Postgres nests comments.
func nestedLen(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			i++
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80
}

// placeholders is how many arguments the text takes.
func (f fragment) placeholders() int { return len(f.parts) - 1 }

// with is the text with its arguments as numbered parameters.
func (f fragment) with(p *params, args []any) string {
	var b strings.Builder
	for i, part := range f.parts {
		if i > 0 {
			b.WriteString(p.add(args[i-1]))
		}
		b.WriteString(part)
	}
	return b.String()
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
