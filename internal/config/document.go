package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// document is the text of a file, what it says, and where it says what.
type document struct {
	path  string // of the file, for messages
	lines []string
	// values as go-toml reads them: nested maps and slices.
	values map[string]any
	// keys and tables are found by their path: "kinds.urlcheck.timeout", "source[0].path".
	places map[string]place
}

// place is a piece of one line.
type place struct {
	line   int // from 1
	column int // in characters, from 1
	length int // in characters
}

// maxSize of a config file, and of those that it names: more is a mistake in the name of the file.
const maxSize = 1 << 20

// maxSyntax is how many lines that are no TOML are reported.
const maxSyntax = 20

// parse reads a text. A line that is no TOML is reported and left out, so that the mistakes in the
// others are found as well. A mistake in the line after one is taken for its consequence, as of a
// bracket that is never closed: with it the reading ends.
func parse(path string, text []byte) (*document, []Problem) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // which some editors put before UTF-8
	d := &document{path: path, lines: strings.Split(string(text), "\n"), places: map[string]place{}, values: map[string]any{}}
	rest := bytes.Clone(text)
	var problems []Problem
	for last := -1; ; {
		values := map[string]any{}
		err := toml.Unmarshal(rest, &values)
		if err == nil {
			d.values = values
			break
		}
		bad, ok := errors.AsType[*toml.DecodeError](err)
		if !ok {
			return d, append(problems, d.problem(place{line: 1, column: 1}, "%s", err))
		}
		line, column := bad.Position()
		if line == last || line == last+1 || len(problems) == maxSyntax {
			problems[len(problems)-1].Hint = cmp.Or(problems[len(problems)-1].Hint, "is a bracket or a quote in a line above not closed?")
			rest = d.before(rest, last)
			break
		}
		problems = append(problems, d.syntax(line, column, bad))
		blank(rest, line)
		last = line
	}
	d.locate(rest)
	return d, problems
}

// before reads what stands before a line, as far as it is TOML, and gives it.
func (d *document) before(text []byte, line int) []byte {
	for tries := 0; line > 1 && tries < maxSyntax; tries++ {
		values := map[string]any{}
		if text = head(text, line); toml.Unmarshal(text, &values) == nil {
			d.values = values
			return text
		}
		line--
	}
	return nil
}

// blank overwrites a line with spaces, which leaves the places of all others.
func blank(text []byte, line int) {
	start, end := extent(text, line)
	for i := start; i < end; i++ {
		text[i] = ' '
	}
}

// head is the text before a line.
func head(text []byte, line int) []byte {
	start, _ := extent(text, line)
	return text[:start]
}

// extent is where a line begins and ends, without its line feed.
func extent(text []byte, line int) (start, end int) {
	for ; line > 1; line-- {
		i := bytes.IndexByte(text[start:], '\n')
		if i < 0 {
			return len(text), len(text)
		}
		start += i + 1
	}
	if i := bytes.IndexByte(text[start:], '\n'); i >= 0 {
		return start, start + i
	}
	return start, len(text)
}

// syntax words a mistake that go-toml has found.
func (d *document) syntax(line, column int, err *toml.DecodeError) Problem {
	message := strings.TrimPrefix(err.Error(), "toml: ")
	at := d.fromBytes(line, column)
	text := ""
	if line >= 1 && line <= len(d.lines) {
		text = strings.TrimSpace(d.lines[line-1])
	}
	p := d.problem(at, "%s", message)
	p.text = hideValues(d.tableAbove(line), p.text)
	if name, value, found := strings.Cut(text, "="); found && !strings.ContainsAny(value, `"'`) {
		if value = strings.TrimSpace(value); value != "" && !strings.ContainsAny(value[:1], "[{0123456789+-") && value != "true" && value != "false" {
			p.Hint = fmt.Sprintf("text stands in quotes: %s = \"…\"", strings.TrimSpace(name))
		}
	}
	return p
}

// tableAbove is the header of the table in which a line that is no TOML seems to be.
func (d *document) tableAbove(line int) string {
	for i := min(line, len(d.lines)) - 1; i >= 0; i-- {
		if header, ok := strings.CutPrefix(strings.TrimSpace(d.lines[i]), "["); ok {
			header, _, _ = strings.Cut(strings.Trim(header, "["), "]")
			return strings.ReplaceAll(header, " ", "")
		}
	}
	return ""
}

// fromBytes makes a place of go-toml's, which counts bytes.
func (d *document) fromBytes(line, column int) place {
	if line < 1 || line > len(d.lines) {
		return place{line: max(1, min(line, len(d.lines))), column: 1}
	}
	text := d.lines[line-1]
	return place{line: line, column: 1 + utf8.RuneCountInString(text[:max(0, min(column-1, len(text)))])}
}

// locate notes where each key and table is.
func (d *document) locate(text []byte) {
	p := unstable.Parser{}
	p.Reset(text)
	l := locator{doc: d, text: text, counts: map[string]int{}, starts: []int{0}}
	for i, c := range text {
		if c == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table:
			table = l.header(e, false)
		case unstable.ArrayTable:
			table = l.header(e, true)
		case unstable.KeyValue:
			l.keyValue(table, e)
		}
	}
}

// locator follows the expressions of a file as TOML has it: [[a]] begins the next element of a,
// and a path that leads through such an array means its last element.
type locator struct {
	doc    *document
	text   []byte
	starts []int          // of the lines
	counts map[string]int // elements of an array of tables so far, by its path
}

// header notes a table and gives its path.
func (l *locator) header(e *unstable.Node, array bool) string {
	path := ""
	var at place
	for keys := e.Key(); keys.Next(); {
		key := keys.Node()
		path = joinPath(path, string(key.Data))
		at = l.place(key)
		if array && keys.IsLast() {
			l.note(path, at)
			l.counts[path]++
		}
		if n := l.counts[path]; n > 0 {
			path = fmt.Sprintf("%s[%d]", path, n-1)
		}
		l.note(path, at)
	}
	l.doc.places[path] = at
	return path
}

// keyValue notes a key, and those within its value.
func (l *locator) keyValue(table string, e *unstable.Node) {
	path := table
	for keys := e.Key(); keys.Next(); {
		path = joinPath(path, string(keys.Node().Data))
		l.note(path, l.place(keys.Node()))
	}
	l.value(path, e.Value())
}

// value notes keys in inline tables, and elements of arrays.
func (l *locator) value(path string, v *unstable.Node) {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				l.keyValue(path, it.Node())
			}
		}
	case unstable.Array:
		n := 0
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.Comment {
				continue
			}
			element := fmt.Sprintf("%s[%d]", path, n)
			if it.Node().Raw.Length > 0 {
				l.note(element, l.place(it.Node()))
			}
			l.value(element, it.Node())
			n++
		}
	}
}

// note keeps the first place of a path: a table is where it is first named.
func (l *locator) note(path string, at place) {
	if _, known := l.doc.places[path]; !known {
		l.doc.places[path] = at
	}
}

func (l *locator) place(n *unstable.Node) place {
	start := int(n.Raw.Offset)
	raw, _, _ := bytes.Cut(l.text[start:start+int(n.Raw.Length)], []byte("\n"))
	line, found := slices.BinarySearch(l.starts, start)
	if found {
		line++
	}
	return place{line: line, column: 1 + utf8.RuneCount(l.text[l.starts[line-1]:start]), length: utf8.RuneCount(raw)}
}

// at is the place of a path, else of the nearest table around it; the zero place if there is none.
func (d *document) at(path string) place {
	for path != "" {
		if p, known := d.places[path]; known {
			return p
		}
		path = parentPath(path)
	}
	return place{}
}

// joinPath adds a key to a path. A key with a dot or a bracket of its own is quoted.
func joinPath(path, key string) string {
	if key == "" || strings.ContainsAny(key, `."[]`) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// parentPath takes the last key or index off a path.
func parentPath(path string) string {
	quoted := false
	for i := len(path) - 1; i > 0; i-- {
		switch {
		case path[i] == '"' && path[i-1] != '\\':
			quoted = !quoted
		case (path[i] == '.' || path[i] == '[') && !quoted:
			return path[:i]
		}
	}
	return ""
}
