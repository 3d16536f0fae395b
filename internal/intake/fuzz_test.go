package intake

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// all reads a source to its end: its items, the numbers of its bad lines, and the error that ended it.
func all(s Source) (items []Found, bad []int, err error) {
	s.Template.Kind = "k"
	for f, e := range s.Items(context.Background()) {
		var line *BadLine
		var left *NotTaken
		switch {
		case errors.As(e, &line):
			bad = append(bad, line.Line)
		case errors.As(e, &left):
		case e != nil:
			return items, bad, e
		default:
			items = append(items, f)
		}
	}
	return items, bad, nil
}

// The normal form of a URL is its own normal form and names the same thing, and no password is in a key or an error.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"https://Example.ORG:443", "http://u:secret@h/p?q#f", "HTTP://[::1]:80/",
		"http://[fe80::1%25eth0]/", "//h", "h.org/x", "mailto:a@b", "http://h:/",
		"http://é.org/é", "http://h/%zz", "http://u:p:q@h", "ws://h:80/a b", "http://h\x00/", "http://user:pass word@h/",
		"HTTPS://u:p@B.c:443/%aF/?a=é \"&%41#q", "ftp://u@h:21//%2?%&é#z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseURL(text)
		if err != nil {
			var mistake *ArgError
			if !errors.As(err, &mistake) {
				t.Fatalf("%q: %v is no mistake of who typed it", text, err)
			}
			return
		}
		for _, form := range []string{a.String(), a.Key()} {
			if again, err := ParseURL(form); err != nil {
				t.Errorf("%q became %q: %v", text, form, err)
			} else if again.String() != form || again.Host() != a.Host() {
				t.Errorf("%q became %q, and that %q", text, form, again)
			}
		}
		plain := func(query string) string {
			text, _ := url.PathUnescape(query)
			return text
		}
		given, err := url.Parse(strings.TrimSpace(text))
		if err != nil || !strings.EqualFold(given.Scheme, a.u.Scheme) ||
			!strings.EqualFold(given.Hostname(), a.u.Hostname()) || plain(given.RawQuery) != plain(a.u.RawQuery) ||
			given.Fragment != a.u.Fragment || given.Path != a.u.Path && given.Path != "" {
			t.Errorf("%q became %q, which is something else (%v)", text, a, err)
		}
		if _, has := a.u.User.Password(); has {
			if u, err := url.Parse(a.Key()); err != nil {
				t.Errorf("key %q: %v", a.Key(), err)
			} else if _, still := u.User.Password(); still {
				t.Errorf("key %q has a password", a.Key())
			}
		}
	})
}

// A list is compared with a simple reading of it: a line is an input, except blank lines and those that begin with #.
// An input that the ledger refuses is a bad line.
func FuzzList(f *testing.F) {
	for _, s := range []string{"a\nb\n", "\ufeffa\r\n# no\n\n  b  ", "a\x00b\nc", "\xff\n", "#", strings.Repeat("x", 3000),
		"\u00a0a\u2003\n\u0085", "\"q\"\\\n<&>"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
			return // it would be read as UTF-16
		}
		var want []string
		var wantBad []int
		for i, line := range strings.Split(string(bytes.TrimPrefix(text, []byte("\ufeff"))), "\n") {
			line = strings.TrimSpace(line)
			switch {
			case line == "" || line[0] == '#':
			case ledger.CheckItem(ledger.NewItem{Kind: "k", Key: line}) != nil:
				wantBad = append(wantBad, i+1)
			default:
				want = append(want, line)
			}
		}
		items, bad, err := all(Source{Input: ledger.Input{Field: "text"}, Args: []string{Stdin},
			Stdin: bytes.NewReader(text)})
		var got []string
		for _, it := range items {
			got = append(got, it.Item.Key)
			var payload struct{ Text string }
			if err := json.Unmarshal(it.Item.Payload, &payload); err != nil || payload.Text != it.Item.Key {
				t.Errorf("the payload of %q is %s, %v", it.Item.Key, it.Item.Payload, err)
			}
		}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v, items (-want +got):\n%s", err, d)
		}
		if d := cmp.Diff(wantBad, bad); d != "" {
			t.Errorf("bad lines (-want +got):\n%s", d)
		}
	})
}

// Every line is an item whose payload has the values of the line, to the last digit, or a bad line. No line is both,
// and two different lines never make the same item.
func FuzzJSONL(f *testing.F) {
	for _, s := range []string{`{"id":"a","n":123456789012345678901234567890}`, `{"id":1e400}`, "{\"id\":\"\xff\"}",
		`{"id":"\ud800"}`, `{"id":"a","id":"b"}`, `{"ID":"a"}`, `null`, `[]`, `{"id":null}`,
		`{"id":" "}`, "{}\n\n{\"id\":\"<b>&\"}", `{"id":"a","x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) +
			`}`, `{"id":"a\u0000"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
			return
		}
		lines := strings.Split(string(bytes.TrimPrefix(text, []byte("\ufeff"))), "\n")
		items, bad, err := all(Source{JSONL: Stdin, Key: "id", Stdin: bytes.NewReader(text)})
		must.OK(t, err)
		filled := 0
		for _, line := range lines {
			if strings.TrimSpace(line) != "" {
				filled++
			}
		}
		if len(items)+len(bad) != filled {
			t.Errorf("%d items and bad lines %v of %d lines", len(items), bad, filled)
		}
		for _, it := range items {
			var n int
			if _, after, ok := strings.Cut(it.Item.Source, ":"); ok {
				at, err := json.Number(after).Int64()
				must.OK(t, err)
				n = int(at)
			}
			given, kept := object(t, lines[n-1]), object(t, string(it.Item.Payload))
			if !reflect.DeepEqual(given, kept) {
				t.Errorf("%q became %s", lines[n-1], it.Item.Payload)
			}
			key, number := given["id"].(json.Number)
			if text, is := given["id"].(string); is && strings.TrimSpace(text) != it.Item.Key || number &&
				key.String() != it.Item.Key || !utf8.ValidString(lines[n-1]) {
				t.Errorf("%q has the key %q", lines[n-1], it.Item.Key)
			}
		}
	})
}

// object returns a JSON object with its numbers as they are written.
func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return o
}

// Cells are written as CSV and must come back as payloads. A row that the ledger cannot store is a bad line.
func FuzzTable(f *testing.F) {
	for _, s := range []string{"a|b|c|d", "k|\xff|é|v", "1,2|\"x\"\n|\r\n|é|\xff|b|", "k\x00|v", " a |  ",
		"=|:=null|a=b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cells := strings.Split(text, "|")
		var file bytes.Buffer
		w := csv.NewWriter(&file)
		rows := [][]string{}
		for len(cells) >= 2 {
			// encoding/csv makes LF of CRLF
			row := []string{strings.ReplaceAll(cells[0], "\r", ""), strings.ReplaceAll(cells[1], "\r", ""), "last"}
			rows, cells = append(rows, row), cells[2:]
		}
		must.OK(t, errors.Join(w.Write([]string{"id", "v", "w"}), w.WriteAll(rows)))
		items, bad, err := all(Source{CSV: Stdin, Key: "id", Stdin: &file})
		must.OK(t, err)
		var want []map[string]any
		for _, row := range rows {
			if utf8.ValidString(row[1]) && strings.TrimSpace(row[0]) != "" &&
				ledger.CheckItem(ledger.NewItem{Kind: "k", Key: strings.TrimSpace(row[0])}) == nil {
				o := map[string]any{"id": row[0], "w": row[2]}
				if row[1] != "" {
					o["v"] = row[1]
				}
				want = append(want, o)
			}
		}
		var got []map[string]any
		for _, it := range items {
			o := object(t, string(it.Item.Payload))
			if got = append(got, o); it.Item.Key != strings.TrimSpace(o["id"].(string)) {
				t.Errorf("key %q of %v", it.Item.Key, o)
			}
		}
		if d := cmp.Diff(want, got); d != "" || len(items)+len(bad) != len(rows) {
			t.Errorf("bad lines %v, payloads (-want +got):\n%s", bad, d)
		}
	})
}

// A named file, with any name that the system allows, is an item whose key is its path. No name makes a folder
// impossible to read.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"a.csv", "é", "\xff.csv", "*", "[a", "-", " a ", "a\nb", ".hidden", "~$x", "{a,b}", "\\",
		"http://h", "#x", "%2e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		must.OK(t, err)
		path := filepath.Join(dir, name)
		if strings.ContainsAny(name, "/\x00") || filepath.Dir(path) != dir || os.WriteFile(path, []byte("x"), 0o600) != nil {
			return
		}
		old := time.Now().Add(-time.Hour)
		must.OK(t, errors.Join(os.Chtimes(path, old, old), os.WriteFile(filepath.Join(dir, "zz"), nil, 0o600),
			os.Chtimes(filepath.Join(dir, "zz"), old, old)))
		input := ledger.Input{Type: File, Field: "path"}
		good := ledger.CheckItem(ledger.NewItem{Kind: "k", Key: path}) == nil
		items, _, err := all(Source{Input: input, Args: []string{path}})
		if good != (len(items) == 1 && err == nil) || good && items[0].Item.Key != path {
			t.Errorf("%q by itself: %+v, %v", name, items, err)
		}
		items, _, err = all(Source{Input: input, Args: []string{dir}})
		if last := len(items) - 1; err != nil || last < 0 || items[last].Item.Key != filepath.Join(dir, "zz") && name < "zz" {
			t.Errorf("a folder with %q: %+v, %v", name, items, err)
		}
	})
}
