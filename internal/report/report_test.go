package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rivo/uniseg"

	"github.com/ledgerd/ledgerd/internal/must"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must.OK(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must.OK(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s\n-want +got\n%s", name, diff)
	}
}

type row struct {
	ID      int64    `json:"id"`
	Key     string   `json:"key"`
	Due     Time     `json:"due"`
	Rate    float64  `json:"rate"`
	OK      bool     `json:"ok"`
	Tags    []string `json:"tags"`
	Output  Bytes    `json:"output"`
	Percent *float64 `json:"percent"`
	hidden  int
}

func rows() []row {
	half := 0.5
	return []row{
		{1, "/data/a&b,c.csv", Time(time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC)), 71.25, true, []string{"x", "y"},
			Bytes(`{"status":404,"name":"q\"uote","n":{"deep":[1]}}`), &half, 0},
		{2, "日本語\x1b[2J\nnext", Time{}, 0, false, nil, Bytes("\x00\x01"), nil, 0},
		{3, strings.Repeat("long/", 20), Time{}, 1e6, true, []string{}, nil, nil, 0},
	}
}

// zone sets the time zone of this machine.
func zone(t *testing.T, z *time.Location) {
	local := time.Local
	time.Local = z
	t.Cleanup(func() { time.Local = local })
}

func TestFormats(t *testing.T) {
	zone(t, time.UTC)
	for _, format := range Formats {
		var out bytes.Buffer
		p := &Printer{Out: &out, Format: format}
		w, err := NewRows[row](p, []string{"id", "key", "due", "ok", "output.status"}, []string{"id", "key", "due", "tags",
			"output.status", "output.n.deep", "output"})
		must.OK(t, err)
		for _, r := range rows() {
			must.OK(t, w.Write(r))
		}
		must.OK(t, w.Close())
		golden(t, "rows."+string(format), out.String())
	}
}

func TestColumns(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{Out: &out, Format: Table, Columns: []string{"rate", "percent", "id"}}
	if n, err := List(p, Each(rows()), "key"); err != nil || n != 3 {
		t.Fatal(n, err)
	}
	if diff := cmp.Diff("RATE     PERCENT  ID\n71.25    0.5      1\n0                 2\n1000000           3\n",
		out.String()); diff != "" {
		t.Error(diff)
	}
	p.Columns = []string{"hidden"}
	if _, err := List(p, Each([]row{})); err == nil ||
		err.Error() != `no column "hidden"; there are id, key, due, rate, ok, tags, output, percent` {
		t.Errorf("%v", err)
	}
}

func TestEmpty(t *testing.T) {
	for format, want := range map[Format]string{Table: "", JSON: "[]\n", JSONL: "",
		CSV: "id,key,due,rate,ok,tags,output,percent\n"} {
		var out bytes.Buffer
		if _, err := List(&Printer{Out: &out, Format: format}, Each([]row{})); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
	}
}

func TestWidth(t *testing.T) {
	var out bytes.Buffer
	tab := table{columns: []tableColumn{{heading: "key"}, {heading: "n"}}}
	tab.add([]string{"日本語日本語日本語日本語", "1"})
	tab.add([]string{strings.Repeat("x", 30), "2"})
	must.OK(t, tab.write(&out, 16))
	if diff := cmp.Diff("KEY            N\n日本語日本語…  1\nxxxxxxxxxxxx…  2\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestNarrow: on a terminal a table leaves out columns that are empty or all alike, and cuts keys in their middle.
func TestNarrow(t *testing.T) {
	type item struct {
		ID    int64  `json:"id"`
		Kind  string `json:"kind"`
		Key   string `json:"key"`
		State string `json:"state"`
		Code  string `json:"code"`
	}
	items := []item{{1, "filecsv", "/srv/in/2026/november/hamburg.csv", "dead", ""}, {2, "filecsv", "/srv/in/a.csv",
		"done", ""}}
	short := func(key string) string { return strings.TrimPrefix(key, "/srv/") }
	for _, test := range []struct {
		name    string
		columns []string
		width   int
		items   []item
		want    string
	}{
		{"a terminal", nil, 30, items, "all: kind filecsv\nID  KEY                  STATE\n1   in/20…r/hamburg.csv  " +
			"dead\n2   in/a.csv             done\n"},
		{"no terminal", nil, 0, items, "ID  KIND     KEY                           STATE  CODE\n" +
			"1   filecsv  in/2026/november/hamburg.csv  dead\n2   filecsv  in/a.csv                      done\n"},
		{"columns that were asked for stay", []string{"kind", "code"}, 80, items, "KIND     CODE\nfilecsv\nfilecsv\n"},
		{"one row keeps what it has", nil, 80, items[:1], "ID  KIND     KEY                           STATE\n1   filecsv  " +
			"in/2026/november/hamburg.csv  dead\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			p := &Printer{Out: &out, Format: Table, Columns: test.columns, Width: test.width, ShortKey: short}
			must.Do(t)(List(p, Each(test.items)))
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBrief: a time of today has no date; a time of another day has date, hour and minute.
func TestBrief(t *testing.T) {
	here := time.FixedZone("here", 2*60*60)
	zone(t, here)
	now := time.Date(2026, 11, 22, 0, 30, 0, 0, here)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{now.Add(time.Minute), "00:31:00"},
		{now.Add(-time.Hour), "2026-11-21 23:30"},
		{now.Add(24 * time.Hour).UTC(), "2026-11-23 00:30"},
		{time.Time{}, ""},
	} {
		if got := brief(c.at, now); got != c.want {
			t.Errorf("%s: %q, want %q", c.at, got, c.want)
		}
	}
}

// TestRoom: times are never cut, other columns are cut before keys and messages, and spare columns are left out,
// columns of zeros first.
func TestRoom(t *testing.T) {
	type failed struct {
		Due   Time   `json:"due"`
		Agent string `json:"agent"`
		Error string `json:"error"`
		Zero  int    `json:"zero_count" heading:"zero" spare:"2"`
		Many  int    `json:"many" spare:"1"`
	}
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.Local)
	list := func(width int, rows ...failed) string {
		t.Helper()
		var out bytes.Buffer
		must.Do(t)(List(&Printer{Out: &out, Format: Table, Width: width}, Each(rows), "due", "agent", "error", "zero_count",
			"many"))
		for line := range strings.Lines(out.String()) {
			if n := uniseg.StringWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d cells at %d: %s", n, width, line)
			}
		}
		return out.String()
	}
	one := failed{Time(at), "machine-of-many/1234", "exited with 127: /srv/tracks/convert.sh: not found", 0, 17}
	for width, want := range map[int]string{
		108: "DUE               AGENT                 ERROR                                               ZERO  MANY\n" +
			"2026-11-20 10:00  machine-of-many/1234  exited with 127: /srv/tracks/convert.sh: not found  0     17\n",
		90: "DUE               AGENT           ERROR                                               MANY\n" +
			"2026-11-20 10:00  machine-of-ma…  exited with 127: /srv/tracks/convert.sh: not found  17\n",
		60: "DUE               AGENT         ERROR\n" +
			"2026-11-20 10:00  machine-of-…  exited w…nvert.sh: not found\n",
	} {
		if diff := cmp.Diff(want, list(width, one)); diff != "" {
			t.Errorf("%d: %s", width, diff)
		}
	}
	all := list(40, one, one)
	if want := "all: agent machine-of-many/1234, error\nexited with 127: /srv/tracks/convert.sh:\nnot found, zero 0, " +
		"many 17\nDUE\n"; !strings.HasPrefix(all, want) {
		t.Error(cmp.Diff(want, all))
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text        string
		width, most int
		want        []string
	}{
		{"one two three", 7, 5, []string{"one two", "three"}},
		{"one two three", 8, 5, []string{"one two", "three"}},
		{"one two three four", 7, 2, []string{"one two", "three …"}},
		{"日本語日本語", 5, 5, []string{"日本", "語日", "本語"}},
		{"x", 5, 5, []string{"x"}},
		{"", 5, 5, nil},
	} {
		if diff := cmp.Diff(c.want, wrap(c.text, c.width, c.most)); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
	}
}

// TestCauses: in a narrow terminal the example is cut before the message.
func TestCauses(t *testing.T) {
	var f Failures
	f.Add(1, strings.Repeat("folder/", 9)+"a.wav", "exit_127", "exited with 127: /srv/tracks/conv.sh: not found\n"+
		strings.Repeat("more ", 20))
	var out bytes.Buffer
	must.OK(t, (&Printer{Out: &out, Width: 80}).Table(f.List(), func(key string) string { return key }))
	if want := "  1 ×  exit_127  exited with 127: /srv/tracks/conv.sh: not found  fol…lder/a.wav\n"; out.String() != want {
		t.Error(cmp.Diff(want, out.String()))
	}
}

// TestColumnsOfJSON: JSON has exactly the fields that were asked for, in their order.
func TestColumnsOfJSON(t *testing.T) {
	for format, want := range map[Format]string{
		JSONL: `{"key":"/data/a&b,c.csv","output.n.deep":[1],"due":"2026-11-20T10:00:00.123456Z","percent":0.5}` + "\n",
		JSON: "[\n" + ` {"key":"/data/a&b,c.csv","output.n.deep":[1],"due":"2026-11-20T10:00:00.123456Z","percent":0.5}` +
			"\n]\n",
	} {
		var out bytes.Buffer
		p := &Printer{Out: &out, Format: format, Columns: []string{"key", "output.n.deep", "due", "percent"}}
		must.Do(t)(List(p, Each(rows()[:1])))
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s: %s", format, diff)
		}
		out.Reset()
		must.Do(t)(List(p, Each(rows()[2:])))
		if !strings.Contains(out.String(), `"output.n.deep":null,"due":null,"percent":null}`) {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}

func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain äöü 日本 “q\"\\":      "plain äöü 日本 “q\"\\",
		"two\nlines\tand tab":      "two lines and tab",
		"\x1b]0;title\a":           `\x1b]0;title\a`,
		"bad \xff byte":            `bad \xff byte`,
		"right\u202eto left":       `right\u202eto left`,
		"c:\\a \"quoted\" \x00 up": `c:\a "quoted" \x00 up`,
	} {
		if got := Safe(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestFailures(t *testing.T) {
	var f Failures
	for i := range 30 {
		key := fmt.Sprintf("/in/leads-%02d.csv", i)
		f.Add(int64(i+1), key, "missing_column", `column "email" missing in `+key)
	}
	f.Add(40, "/in/old.csv", "bad_encoding", "not UTF-8 at byte 18,233\nlooks like windows-1252")
	f.Add(41, "/in/older.csv", "bad_encoding", "not UTF-8 at byte 7\nlooks like windows-1252")
	f.Add(42, "https://h/x", "http_404", "404 Not Found: x-request 0f8fad5b-d9cb-469f-a165-70867728950e")
	f.Add(43, "https://h/y", "http_404", "404 Not Found: x-request 7c9e6679-7425-40de-944b-e07fc1f90ae7")
	f.Add(44, "/in/z.csv", "", "")

	got := f.List()
	type brief struct {
		Code     string
		Count    int64
		Examples int
	}
	var list []brief
	for _, g := range got {
		list = append(list, brief{g.Code, g.Count, len(g.Examples)})
	}
	if diff := cmp.Diff([]brief{{"missing_column", 30, 3}, {"bad_encoding", 2, 2}, {"http_404", 2, 2}, {"", 1, 1}},
		list); diff != "" {
		t.Error(diff)
	}
	if s := got[1].Share; s != 2.0/35 {
		t.Errorf("share %v", s)
	}
	var out bytes.Buffer
	must.OK(t, (&Printer{Out: &out}).Table(got, filepath.Base))
	golden(t, "failures.table", out.String())
}

// TestManyCauses: at most maxCauses causes are kept, and one for all others.
func TestManyCauses(t *testing.T) {
	var f Failures
	word := func(i int) string { return strings.Map(func(r rune) rune { return r - '0' + 'a' }, fmt.Sprint(i)) }
	for i := range 3 * maxCauses {
		f.Add(int64(i), "key", "", "cause "+word(i))
	}
	got := f.List()
	if len(got) != maxCauses+1 || got[0].Count != 2*maxCauses || got[0].Message != "other causes" {
		t.Errorf("%d causes, first %+v", len(got), got[0])
	}
	var out bytes.Buffer
	must.OK(t, (&Printer{Out: &out}).Table(got, filepath.Base))
	if lines := strings.Count(out.String(), "\n"); lines != shownCauses+1 {
		t.Errorf("%d lines\n%s", lines, out.String())
	}
	if want := "991 ×  of 991 further causes"; !strings.Contains(strings.Join(strings.Fields(out.String()), " "),
		strings.Join(strings.Fields(want), " ")) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

func TestObject(t *testing.T) {
	v := map[string]any{"a": Time{}, "u": "x&y"}
	for format, want := range map[Format]string{JSON: "{\n  \"a\": null,\n  \"u\": \"x&y\"\n}\n",
		JSONL: "{\"a\":null,\"u\":\"x&y\"}\n"} {
		var out bytes.Buffer
		if err := (&Printer{Out: &out, Format: format}).Object(v); err != nil || out.String() != want {
			t.Errorf("%s: %q %v", format, out.String(), err)
		}
	}
}

// TestIndented: signs within strings do not count as nesting, and what is nested too deeply stays as it is.
func TestIndented(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for in, lines := range map[string]int{`{"a":"\"[` + strings.Repeat("[", 60) + `"}`: 3, deep(50): 99, deep(51): 1,
		`{"\\":` + deep(9_990) + `}`: 1, "[no JSON": 1, strings.Repeat("[],", 60): 1, "[" + strings.Repeat("[],", 60) + "1]": 63} {
		out := string(Indented([]byte(in)))
		if n := strings.Count(out, "\n") + 1; n != lines || n == 1 && out != in {
			t.Errorf("%.20s… has %d lines, want %d", in, n, lines)
		}
	}
}

// TestReadBack: values that are written as JSON are the same when they are read.
func TestReadBack(t *testing.T) {
	type row struct {
		At   Time
		Took Duration
		Out  Bytes
	}
	at := Time(time.Date(2026, 11, 20, 10, 0, 0, 1000, time.UTC))
	for _, want := range []row{{}, {at, Duration(1500 * time.Millisecond), Bytes(`{"a":[1]}`)}, {at, 0, Bytes("\x00no JSON")},
		{at, 0, Bytes(`"base64"`)}, {at, 0, Bytes(`{"name":"a","base64":"aGk="}`)},
		{at, 0, Bytes(`{"Base64":"aGk="}`)}, {at, 0, Bytes(`{"base64":null}`)}, {at, 0, Bytes(`{"base64":"?"}`)}} {
		text, err := Marshal(want)
		var got row
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || !time.Time(got.At).Equal(time.Time(want.At)) || got.Took != want.Took ||
			string(got.Out) != string(want.Out) {
			t.Errorf("%s: %+v, want %+v, %v", text, got, want, err)
		}
	}
}

// TestExact: bytes stay the same, through both encoders and a decoder.
func TestExact(t *testing.T) {
	for text, plain := range map[string]bool{`{"a":[1,"b",1e400,true]}`: true, `"é"`: true, "": false, "null": false, "1 ": false,
		`{"a": 1}`: false, `"<&>"`: false, "\"\u2028\"": false, "\"\u202e\"": false, `{"base64":"QQ=="}`: false,
		`{"\u0062ase64":"QQ=="}`: false, "\"\xff\"": false, "\xff": false, "\x00": false, `"\u003c"`: false} {
		raw := Exact([]byte(text))
		if plain != (string(raw) == text && text != "") {
			t.Errorf("%q is sent as %s", text, raw)
		}
		for _, encode := range []func(any) ([]byte, error){json.Marshal, Marshal} {
			sent, err := encode([]Bytes{raw})
			must.OK(t, err)
			var got []Bytes
			must.OK(t, json.Unmarshal(sent, &got))
			if string(got[0]) != text {
				t.Errorf("%q has become %q by %s", text, got[0], sent)
			}
		}
	}
}
