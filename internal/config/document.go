package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// document holds the values of a file and their places.
type document struct {
	path string // of the file, for messages
	// values are nested maps and slices, as go-toml decodes them.
	values map[string]any
	// places of keys and tables by path: "kinds.urlcheck.timeout", "source[0].path"
	places map[string]unstable.Position
}

// maxSize bounds a config file and the files that it names, in bytes. A larger file is probably the wrong one.
const maxSize = 1 << 20

// parse parses a text. If it is not TOML, the only problem is the first mistake, in the words of go-toml, and nothing
// is decoded.
func parse(path string, text []byte) (*document, []Problem) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors put it before UTF-8
	d := &document{path: path, values: map[string]any{}, places: map[string]unstable.Position{}}
	if err := toml.Unmarshal(text, &d.values); err != nil {
		d.values = nil
		p := Problem{File: path, Line: 1, Column: 1, Message: "not TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
		if bad, ok := errors.AsType[*toml.DecodeError](err); ok {
			p.Line, p.Column = bad.Position()
		}
		return d, []Problem{p}
	}
	d.locate(text)
	return d, nil
}

// locate records the place of each key and table.
func (d *document) locate(text []byte) {
	l := locator{doc: d, counts: map[string]int{}}
	l.parser.Reset(text)
	table := ""
	for l.parser.NextExpression() {
		e := l.parser.Expression()
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

// locator follows the expressions of a file by the rules of TOML: [[a]] begins the next element of a, and a path
// through such an array means its last element.
type locator struct {
	doc    *document
	parser unstable.Parser
	counts map[string]int // number of elements so far in an array of tables, by its path
}

// header records a table and returns its path.
func (l *locator) header(e *unstable.Node, array bool) string {
	path := ""
	var at unstable.Position
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

// keyValue records a key, and the keys in its value.
func (l *locator) keyValue(table string, e *unstable.Node) {
	path := table
	for keys := e.Key(); keys.Next(); {
		path = joinPath(path, string(keys.Node().Data))
		l.note(path, l.place(keys.Node()))
	}
	l.value(path, e.Value())
}

// value records keys in inline tables, and elements of arrays.
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

// note records the first place of a path: that of a table is where it is named first.
func (l *locator) note(path string, at unstable.Position) {
	if _, known := l.doc.places[path]; !known {
		l.doc.places[path] = at
	}
}

func (l *locator) place(n *unstable.Node) unstable.Position { return l.parser.Shape(n.Raw).Start }

// at returns the place of a path, else of the nearest table around it, else the zero place.
func (d *document) at(path string) unstable.Position {
	for path != "" {
		if p, known := d.places[path]; known {
			return p
		}
		path = parentPath(path)
	}
	return unstable.Position{}
}

// joinPath adds a key to a path. It quotes a key that contains a dot or a bracket.
func joinPath(path, key string) string {
	if key == "" || strings.ContainsAny(key, `."[]`) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// parentPath removes the last key or index of a path.
func parentPath(path string) string {
	end, quoted := 0, false
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '\\' && quoted:
			i++ // the next character is part of the key
		case c == '"':
			quoted = !quoted
		case (c == '.' || c == '[') && !quoted:
			end = i
		}
	}
	return path[:end]
}
