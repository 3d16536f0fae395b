package filecsv

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
)

// The default limits of a field and a record.
const (
	longField  = 1 << 20
	longRecord = 8 << 20
)

// readRecords returns the records of src as text, malformed ones as their error, and the error at the end.
func readRecords(src io.Reader, delim, eol byte) (rows [][]string, err error) {
	r := newRecords(src, 0)
	r.delim, r.eol = delim, eol
	for {
		err := r.next()
		var m *malformed
		switch {
		case err == io.EOF:
			return rows, nil
		case errors.As(err, &m):
			rows = append(rows, []string{m.Error(), string(m.raw)})
			continue
		case err != nil:
			return rows, err
		}
		row := make([]string, len(r.fields))
		for i, f := range r.fields {
			row[i] = string(f)
		}
		rows = append(rows, row)
	}
}

func TestRecords(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		eol  byte
		want [][]string
		err  string
	}{
		"nothing":      {text: ""},
		"blank lines":  {text: "\n\r\n\n\r"},
		"plain":        {text: "a,b\nc,d", want: [][]string{{"a", "b"}, {"c", "d"}}},
		"empty fields": {text: ",\n,,\n\"\"\n", want: [][]string{{"", ""}, {"", "", ""}, {""}}},
		"crlf":         {text: "a,b\r\n\"c\",\"d\"\r\n\"e\"\r", want: [][]string{{"a", "b"}, {"c", "d"}, {"e"}}},
		"cr only": {text: "a,b\r\"c\rd\",e\r\"f\",g", eol: '\r', want: [][]string{{"a", "b"}, {"c\rd", "e"},
			{"f", "g"}}},
		"cr in a field":        {text: "a\rb,\"c\rd\"\n", want: [][]string{{"a\rb", "c\rd"}}},
		"crlf stays in quotes": {text: "\"a\r\nb\",c\r\n", want: [][]string{{"a\r\nb", "c"}}},
		"doubled": {text: `"""a""",b""` + "\n",
			want: [][]string{{"line 1: bare quote at character 10 of the line", `"""a""",b""`}}},
		"all kinds": {text: `a,"b,""c""` + "\n" + `d",,"",""""` + "\ne",
			want: [][]string{{"a", "b,\"c\"\nd", "", "", `"`}, {"e"}}},
		"quote at the very end": {text: "a\n\"b\"", want: [][]string{{"a"}, {"b"}}},
		"bare quote": {text: "a,b\"c,d\ne,f\n", want: [][]string{{"line 1: bare quote at character 4 of the line",
			"a,b\"c,d"}, {"e", "f"}}},
		"characters, not bytes": {text: "é,ü\"\n", want: [][]string{{"line 1: bare quote at character 4 of the line",
			"é,ü\""}}},
		"after two lines": {text: "\"a\nb\",c\"\nd\n", want: [][]string{{"line 2: bare quote at character 5 of the line",
			"\"a\nb\",c\""}, {"d"}}},
		"text after a quote": {text: "\"a\"b,c\nd\n",
			want: [][]string{{"line 1: text after the closing quote at character 3 of the line", "\"a\"b,c"}, {"d"}}},
		"quote takes in lines": {text: "1,\"a\n2,b\n3,\"c\"\n", want: [][]string{
			{"line 1: the quote opened at character 3 of the line is closed by one in the middle of line 3", "1,\"a"}, {"2",
				"b"}, {"3", "c"}}},
		"never closed": {text: "a\nb,\"c\nd\n", want: [][]string{{"a"}},
			err: "line 2: the quote opened at character 3 is never closed"},
		"never closed, tiny": {text: `"`, err: "line 1: the quote opened at character 1 is never closed"},
		"longest field": {text: strings.Repeat("x", longField) + ",\"" + strings.Repeat("y", longField) + "\"\n",
			want: [][]string{{strings.Repeat("x", longField), strings.Repeat("y", longField)}}},
		"field too long": {text: "a\n" + strings.Repeat("x", longField+1) + "\n", want: [][]string{{"a"}},
			err: "line 2: a field is longer than 1.0 MiB; where that is fine: --with max_field_bytes=…"},
		"quoted too long": {text: "a\n\"" + strings.Repeat("x", longField+1) + "\"\n", want: [][]string{{"a"}},
			err: "line 2: a field is longer than 1.0 MiB; where that is fine: --with max_field_bytes=…"},
		"beside quotes": {text: "\"\"," + strings.Repeat("x", longField+1) + "\n",
			err: "line 1: a field is longer than 1.0 MiB; where that is fine: --with max_field_bytes=…"},
		"long with lines": {text: "a\n\"" + strings.Repeat("x\n", longField) + "\"\n", want: [][]string{{"a"}},
			err: "line 2: the quote opened at character 1 is not closed within 1.0 MiB, the longest field allowed (--with " +
				"max_field_bytes=…)"},
		"record too long": {text: strings.Repeat(strings.Repeat("x", longField)+",", 8) + "x\n",
			err: "line 1: a record is longer than 8.0 MiB"},
		"quoted record": {text: "a\n" + strings.Repeat("\""+strings.Repeat("\n", longField-1)+"\",", 9) + "x\n",
			want: [][]string{{"a"}}, err: "line 2: a record is longer than 8.0 MiB"},
		"blanks at quotes":  {text: "\"a\", \"b,c\" ,\t\"d\"\n \"e\"\t\r\n", want: [][]string{{"a", "b,c", "d"}, {"e"}}},
		"blanks, no quotes": {text: " a , b\n", want: [][]string{{" a ", " b"}}},
		"text before quotes": {text: "a, b \"c\"\n", want: [][]string{{"line 1: bare quote at character 6 of the line",
			`a, b "c"`}}},
		"backslash": {text: `"a\",b` + "\nc\n", want: [][]string{{`a\`, "b"}, {"c"}}},
		"backslash in it": {text: `"a \"b\" c",d` + "\n",
			want: [][]string{
				{
					`line 1: text after the closing quote at character 5 of the line; where \" is a quote within a value: --set quotes=backslash`, `"a \"b\" c",d`}}},
		"no end at all":  {text: strings.Repeat("1234567,", maxColumns*200), err: "line 1: more than 10,000 columns"},
		"quotes, no end": {text: strings.Repeat("\"\",", maxColumns+1), err: "line 1: more than 10,000 columns"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.eol == 0 {
				c.eol = '\n'
			}
			for _, src := range []io.Reader{strings.NewReader(c.text), iotest.HalfReader(strings.NewReader(c.text)),
				iotest.DataErrReader(strings.NewReader(c.text))} {
				rows, err := readRecords(src, ',', c.eol)
				if d := cmp.Diff(c.want, rows); d != "" {
					t.Errorf("-want +got\n%.2000s", d)
				}
				if got := fmt.Sprint(err); got != c.err && !(err == nil && c.err == "") {
					t.Errorf("ended with %q, want %q", got, c.err)
				}
			}
		})
	}
}

func TestMostColumns(t *testing.T) {
	for _, cell := range []string{"x", `""`} {
		rows, err := readRecords(strings.NewReader(strings.Repeat(cell+",", maxColumns-1)+cell), ',', '\n')
		if err != nil || len(rows) != 1 || len(rows[0]) != maxColumns {
			t.Errorf("%d columns of %s: %d rows, %v", maxColumns, cell, len(rows), err)
		}
	}
}

// endless returns a start and then the same line for ever.
type endless struct {
	start, line string
	read        int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.start)
	if e.start = e.start[n:]; n == 0 {
		for n < len(p) {
			n += copy(p[n:], e.line[(e.read+int64(n))%int64(len(e.line)):])
		}
	}
	e.read += int64(n)
	return n, nil
}

// TestNoEnd reads up to 200 MB in which something never ends. That must be noticed after a bounded part and in
// bounded memory.
func TestNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		start, line, code string
		want              string
	}{
		"quote":  {"id,note\n1,a\n2,\"b\n", "3,c and some more text\n", "unterminated_quote", "line 3: "},
		"line":   {"id,note\n", "0123456789", "field_too_long", "line 2: "},
		"row":    {"id,note\n", "0123456789,", "too_many_columns", "line 2: "},
		"spaced": {"id,note\n", strings.Repeat("x", 10_000) + ",", "record_too_long", "line 2: "},
	} {
		t.Run(name, func(t *testing.T) {
			src := &endless{start: c.start, line: c.line}
			r := newRecords(io.LimitReader(src, 200_000_000), 0)
			var err error
			for err == nil {
				err = r.next()
			}
			if codeOf(err) != c.code || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s at %s", err, c.code, c.want)
			}
			if src.read > 4*longRecord || len(r.buf) > 4*longRecord {
				t.Errorf("read %d bytes, with a buffer of %d", src.read, len(r.buf))
			}
		})
	}
}

// TestSteadyMemory reads 20 MB of rows with a buffer for a few.
func TestSteadyMemory(t *testing.T) {
	const rows = "1,\"two\nlines\",three\n2,\"a \"\"b\"\" c\",d\n"
	times := int64(20_000_000 / len(rows))
	r := newRecords(io.LimitReader(&endless{line: rows}, times*int64(len(rows))), 0)
	n := int64(0)
	for r.next() == nil {
		n++
	}
	if n != 2*times || r.srcErr != io.EOF || len(r.buf) != 64<<10 {
		t.Errorf("%d rows of %d, %v, with a buffer of %d bytes", n, 2*times, r.srcErr, len(r.buf))
	}
}

// TestWrittenByOthers reads the rows that encoding/csv wrote.
func TestWrittenByOthers(t *testing.T) {
	cell := rapid.OneOf(rapid.StringMatching(`[a-z0-9,;"\n\r\t é]{0,20}`), rapid.Just(""), rapid.Just("\n"),
		rapid.Just("\r\n"), rapid.Just(`"`))
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(2, 6).Draw(t, "width")
		rows := rapid.SliceOfN(rapid.SliceOfN(cell, width, width), 1, 30).Draw(t, "rows")
		delim := rapid.SampledFrom([]rune{',', ';', '\t', '|'}).Draw(t, "delimiter")
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		w.Comma = delim
		w.WriteAll(rows)
		got, err := readRecords(iotest.HalfReader(&b), byte(delim), '\n')
		if d := cmp.Diff(rows, got); d != "" || err != nil {
			t.Fatalf("%v\n-want +got\n%s", err, d)
		}
	})
}

// FuzzCSV reads any text: without a panic, with the same result for reads of any size, and as encoding/csv reads it.
func FuzzCSV(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*sv")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		must.OK(f, err)
		f.Add(text, byte(','))
		f.Add(text, byte(';'))
	}
	f.Fuzz(func(t *testing.T, text []byte, delim byte) {
		if strings.IndexByte("\x00\"\r\n", delim) >= 0 || delim >= 0x80 {
			return
		}
		text = bytes.ReplaceAll(text, []byte(bom), nil) // encoding/csv knows no marks
		rows, err := readRecords(bytes.NewReader(text), delim, '\n')
		again, againErr := readRecords(iotest.OneByteReader(bytes.NewReader(text)), delim, '\n')
		if d := cmp.Diff(rows, again); d != "" || fmt.Sprint(err) != fmt.Sprint(againErr) {
			t.Fatalf("byte by byte: %v, %v\n%s", err, againErr, d)
		}
		if bad, _ := firstBad(text, true); bad >= 0 {
			if err == nil {
				t.Fatal("not UTF-8, and no error")
			}
			return
		}
		compareWithOther(t, text, delim, rows, err)
	})
}

var blankAtQuote = regexp.MustCompile(`[ \t]"|"[ \t]`)

// compareWithOther compares the rows up to the first record that encoding/csv refuses.
func compareWithOther(t *testing.T, text []byte, delim byte, rows [][]string, err error) {
	other := csv.NewReader(bytes.NewReader(text))
	other.Comma, other.FieldsPerRecord = rune(delim), -1
	for i := 0; ; i++ {
		want, wantErr := other.Read()
		var bad *csv.ParseError
		switch {
		case errors.As(wantErr, &bad) && errors.Is(wantErr, csv.ErrQuote) && i == len(rows) && !blankAtQuote.Match(text):
			if codeOf(err) != "unterminated_quote" {
				t.Fatalf("%v, but here %v", wantErr, err)
			}
			return
		case errors.As(wantErr, &bad) && blankAtQuote.Match(text):
			return // records allows these blanks
		case errors.As(wantErr, &bad):
			if i >= len(rows) || !strings.HasPrefix(rows[i][0], fmt.Sprintf("line %d: ", bad.StartLine)) &&
				!strings.HasPrefix(rows[i][0], fmt.Sprintf("line %d: ", bad.Line)) {
				t.Fatalf("%v, but here row %d of %q, %v", wantErr, i, rows, err)
			}
			return
		case wantErr == io.EOF:
			if i != len(rows) || err != nil {
				t.Fatalf("%d rows, but here %d, %v", i, len(rows), err)
			}
			return
		case wantErr != nil:
			t.Fatal(wantErr)
		case i >= len(rows):
			t.Fatalf("row %q is missing; %v", want, err)
		}
		for j, v := range rows[i] { // encoding/csv converts a CRLF in quotes to LF
			rows[i][j] = strings.ReplaceAll(v, "\r\n", "\n")
		}
		if d := cmp.Diff(want, rows[i]); d != "" {
			t.Fatalf("row %d -encoding/csv +here\n%s", i, d)
		}
	}
}
