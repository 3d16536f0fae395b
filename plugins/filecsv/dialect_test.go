package filecsv

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

func TestSniff(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		delim  byte
		header bool
		set    func(*In)
	}{
		"commas":                   {"a,b\nx,y\n", ',', true, nil},
		"semicolons, commas in it": {"a;b\n1,5;2,5\n3,5;4,5\n", ';', true, nil},
		"commas more often":        {"a;b\nx;1,2,3\ny;4,5\nz;6\n", ';', true, nil},
		"quoted commas":            {"a\tb\n\"x,y\"\t\"1\"\n\"z,w\"\t\"2\"\n", '\t', true, nil},
		"bars":                     {"a|b|c\n1|2|3\n", '|', true, nil},
		"one column":               {"a\nb\nc\n", ',', true, nil},
		"a sentence":               {"Hello, world\nsecond line\nthird line\n", ',', true, nil},
		"numbers below names":      {"a,b\n1,2\n", ',', true, nil},
		"numbers all the way":      {"1,2\n3,4\n", ',', false, nil},
		"only one row of numbers":  {"1,2\n", ',', false, nil},
		"years above words":        {"country,2019,2020\nDE,a,b\n", ',', true, nil},
		"years above numbers":      {"country,2019,2020\nDE,1,2\nFR,7,9\n", ',', true, nil},
		"years above years":        {"a,2019,2020\nb,2001,2002\nc,2003,2009\n", ',', false, nil},
		"a number, and told":       {"country,5\nDE,1\n", ',', true, func(in *In) { in.Required = []string{"country"} }},
		"date in the first row":    {"x,2024-01-31\ny,2024-02-01\n", ',', false, nil},
		"null in the first row":    {",1\n2,3\n", ',', false, nil},
		"named null":               {"-,1\n2,3\n", ',', false, func(in *In) { in.Nulls = []string{"-"} }},
		"nothing below":            {"a,b\n,\n", ',', true, nil},
		"named by a spreadsheet":   {"sep=;\r\na;b\r\n1,5;2,5\r\n", ';', true, nil},
		"named against the rows":   {"SEP=|\na,b\nx,y\n", '|', true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := plain()
			if c.set != nil {
				c.set(&in)
			}
			r, err := newRules(in)
			must.OK(t, err)
			tab, err := openTable(t.Context(), strings.NewReader(c.text), r, plainOptions())
			must.OK(t, err)
			if tab.delim != c.delim || tab.header.yes != c.header {
				t.Errorf("got %q, header %v", tab.delim, tab.header.yes)
			}
		})
	}
}

// TestDialect: dialects of many programs, and how the output reports them.
func TestDialect(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		set   func(*In)
		want  Out // only: rows, bad rows, columns, header, skipped, quotes
		names string
	}{
		"blanks before quotes": {"\"a\", \"b\"\n\"1,5\", \"x\"\n", nil, Out{Rows: 1, ColumnCount: 2, Header: true,
			Quotes: "double"}, "a b"},
		"backslashes": {"a,b\n\"say \\\"hi\\\", he said\",1\n\"x\",2\n", nil, Out{Rows: 2, ColumnCount: 2,
			Header: true, Quotes: "backslash"}, "a b"},
		"a backslash at an end": {"a,b\n\"C:\\dir\\\",1\n\"x\",2\n", nil, Out{Rows: 2, ColumnCount: 2, Header: true,
			Quotes: "double"}, "a b"},
		"quotes in a tsv": {"id\tsize\n1\t5\" disk\n2\t\"Weird\" Al\n", nil, Out{Rows: 2, ColumnCount: 2, Header: true,
			Quotes: "no"}, "id size"},
		"quoted in a tsv": {"id\tsize\n1\t5\" disk\n2\t\"x\"\n", nil, Out{Rows: 2, BadRows: 1, ColumnCount: 2,
			Header: true, Quotes: "double"}, "id size"},
		"doubled, and told": {"a,b\n\"say \\\"hi\\\", he said\",1\n", func(in *In) {
			in.Quotes = "double"
		}, Out{Rows: 1, BadRows: 1, ColumnCount: 2, Header: true, Quotes: "double"}, "a b"},
		"a title": {"Sales of 2026\n\nid,name,n\n1,x,2\n2,y,3\n", nil, Out{Rows: 2, ColumnCount: 3,
			Header: true, Skipped: 2, Quotes: "double"}, "id name n"},
		"remarks": {"# made by hand\n# on Monday\nid,n\n1,2\n", nil, Out{Rows: 1, ColumnCount: 2, Header: true,
			Skipped: 2, Quotes: "double"}, "id n"},
		"a marked header": {"#id,name\n1,x\n2,y\n", nil, Out{Rows: 2, ColumnCount: 2, Header: true, Quotes: "double"},
			"#id name"},
		"a name too few": {"a,b\n1,2,3\n4,5,6\n", nil, Out{Rows: 2, BadRows: 2, ColumnCount: 2, Header: true,
			Quotes: "double"}, "a b"},
		"a header cut short": {"a\n1,2,3\n4,5,6\n7,8,9\n", nil, Out{Rows: 3, BadRows: 3, ColumnCount: 1, Header: true,
			Quotes: "double"}, "a"},
		"skipped": {"a,b\n\"x\nid,n\n1,2\n", func(in *In) {
			in.Skip = 2
		}, Out{Rows: 1, ColumnCount: 2, Header: true, Skipped: 2, Quotes: "double"}, "id n"},
		"delimiters at the end": {"a,,b,,\n1,,2,,\n3,x,4, ,NA\n", func(in *In) {
			in.Nulls = []string{"NA"}
		}, Out{Rows: 2, ColumnCount: 3, Header: true, Quotes: "double"}, "a column_2 b"},
		"values behind them": {"a,b,\n1,2,\n3,4,x\n5,6\n", nil, Out{Rows: 3, BadRows: 2, ColumnCount: 2, Header: true,
			Quotes: "double"}, "a b"},
		"named by the payload": {"a,b,,\n1,2,\n3,4,x,\n", func(in *In) {
			in.Required = []string{"column_3"}
		}, Out{Rows: 2, BadRows: 1, ColumnCount: 3, Header: true, Quotes: "double"}, "a b column_3"},
		"no name at all": {",\nx,y\n", func(in *In) {
			in.Header = "yes"
		}, Out{Rows: 1, ColumnCount: 2, Header: true, Quotes: "double"}, "column_1 column_2"},
		"comments": {"//x\nid,n\n1,2\n// \"y\n3,4\n", func(in *In) {
			in.Comment = "//"
		}, Out{Rows: 2, ColumnCount: 2, Header: true, Quotes: "double"}, "id n"},
	} {
		t.Run(name, func(t *testing.T) {
			in := plain()
			in.MaxBadRows = -1
			if c.set != nil {
				c.set(&in)
			}
			out, err := scan(t.Context(), strings.NewReader(c.text), in, plainOptions())
			var names []string
			for _, column := range out.Columns {
				names = append(names, column.Name)
			}
			got := Out{Rows: out.Rows, BadRows: out.BadRows, ColumnCount: out.ColumnCount, Header: out.Header,
				Skipped: out.Skipped, Quotes: out.Quotes}
			if d := cmp.Diff(c.want, got); d != "" || err != nil || strings.Join(names, " ") != c.names {
				t.Errorf("%v, columns %q, -want +got\n%s", err, names, d)
			}
		})
	}
}

// TestHeader: the signs that distinguish names from values, and the reason in the output. An empty reason means that
// there is no sign.
func TestHeader(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		yes     bool
		because string
	}{
		"words above numbers":  {"id,n\nx,1\n", true, `"n" stands above numbers`},
		"a number above dates": {"5,x\n2024-01-31,y\n", true, `"5" stands above dates`},
		"numbers":              {"1,2\n30,4\n", false, `"1" stands above numbers and is one of them`},
		"numbers alone":        {"1,2\n", false, "it has numbers or dates only"},
		"counted up": {"id,1,2,3\na,5,9,7\nb,4,4,1\n", true,
			`"1" is a year or a number counted up from column to column`},
		"counted up everywhere": {"1,2,3\n4,5,6\n", false, `"1" stands above numbers and is one of them`},
		"one year":              {"Land,2019\nDE,83\nFR,67\n", true, ""},
		"addresses":             {"who\na@example.org\nb@example.org\n", true, `"who" has no @, unlike all values below it`},
		"an address above": {"z@example.org\na@example.org\nb@example.org\n", false,
			`"z@example.org" has an @ like all values below it`},
		"other people's dates": {"day\n20.11.2026\n21.11.2026\n", true, `"day" has no digit, unlike all values below it`},
		"a name with a digit":  {"column 1,c2\nx7,a-1\ny9,b-2\n", true, ""},
		"a value with a digit": {"A-17,x\nB-3,y\nC-99,z\n", false, `"A-17" is written like all values below it`},
		"a value comes again":  {"Berlin,DE\nParis,FR\nHamburg,DE\n", false, `"DE" comes again below`},
		"small above capitals": {"city\nBerlin\nParis\n", true,
			`"city" has no capital at its beginning, unlike all values below it`},
		"words":         {"City,Land\nBerlin,DE\nParis,FR\n", true, ""},
		"nothing below": {"a,b\n", true, ""},
	} {
		r, err := newRules(plain())
		must.OK(t, err)
		h := r.header(r.sniff([]byte(c.text), true).rows)
		if h.yes != c.yes || !strings.HasPrefix(h.because, c.because) || c.because == "" && h.because != "" {
			t.Errorf("%s: %v because %q, want %v because %q", name, h.yes, h.because, c.yes, c.because)
		}
	}
}

// TestMissingColumnHeader: if a column is missing and the header is in doubt, the failure explains how the header was
// found and which setting helps.
func TestMissingColumnHeader(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		set  func(*In)
		want string // the text after "missing"
	}{
		"a header":     {"city,n\nRome,1\n", nil, ""},
		"another case": {"name,Email\nAda,x\nBob,y\n", nil, ""},
		"told":         {"city,land\nRome,IT\n", func(in *In) { in.Header = "yes" }, ""},
		"no header": {"Ada,a@x.org\nBob,b@x.org\nCy,c@x.org\n", nil,
			`; the first row (Ada, a@x.org) is not taken for the header ("a@x.org" has an @ like all values below it): --set header=yes if it is; no header: --set columns=… (names of the columns: 2)`},
		"told, none": {"city,n\nRome,1\n", func(in *In) {
			in.Header = "no"
		}, `; the first row (city, n) is not taken for the header (header=no): --set header=yes if it is; no header: --set columns=… (names of the columns: 2)`},
		"with a table": {"city,n\nRome,1\n", func(in *In) {
			in.Header, in.Table = "no", "t"
		}, `; the first row (city, n) is not taken for the header (header=no): --set header=yes if it is; no header: --set columns=… (names of the columns: 2)`},
		"nothing tells": {"Ada,Rome\nBob,Oslo\n", nil, "; nothing tells whether the first row (Ada, Rome) is the header: " +
			"if it is not, --set columns=… (names of the columns: 2) or --set skip=LINES"},
		"columns are named": {"Ada,Rome\nBob,Oslo\n", func(in *In) { in.Columns = []string{"name", "city"} }, ""},
		"a remark": {"# by hand\nname,n\nAda,1\n# Bob left\n", nil,
			"; the first row is # by hand; if that is a remark: --set comment=# passes over all lines like it, --set " +
				"skip=LINES over those above the header"},
		"a header alone": {"city\n", nil, "; nothing tells whether the first row (city) is the header: if it is not, --set columns=… " +
			"(names of the columns: 1) or --set skip=LINES"},
		"broken": {"a\"b\"\nc\n", func(in *In) { in.Header = "no" }, ""},
	} {
		in := plain()
		in.Required = []string{"email"}
		if c.set != nil {
			c.set(&in)
		}
		_, err := scan(t.Context(), strings.NewReader(c.text), in, plainOptions())
		if want := " missing" + c.want; codeOf(err) != "missing_column" || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", name, err, want)
		}
	}
}

// TestColumns: the payload names the columns of a file without a header, and the checks of the file use these names.
func TestColumns(t *testing.T) {
	in := plain()
	in.Columns, in.Required = []string{"id", "name"}, []string{"name"}
	in.Types = map[string]string{"id": "int"}
	out, err := scan(t.Context(), strings.NewReader("1,Ada\n2,Bob\n"), in, plainOptions())
	if err != nil || out.Rows != 2 || out.Header || out.HeaderWhy != "columns names them" ||
		out.Columns[0].Name != "id" || out.Columns[0].Type != "int" || out.Columns[1].Name != "name" {
		t.Errorf("%+v, %v", out, err)
	}
	_, err = scan(t.Context(), strings.NewReader("1,Ada,Rome\n2,Bob,Oslo\n"), in, plainOptions())
	if codeOf(err) != badRows || !strings.HasSuffix(err.Error(), "the number of fields is 3, not 2; columns has the "+
		"names of 2 columns") {
		t.Error(err)
	}
	for want, set := range map[string]func(*In){
		"header is yes": func(in *In) { in.Header = "yes" },
		`name 2, "id", is blank or was there before`: func(in *In) { in.Columns = []string{"id", "id"} },
		`name 1, "", is blank or was there before`:   func(in *In) { in.Columns = []string{"", "id"} },
	} {
		wrong := in
		set(&wrong)
		if _, err := scan(t.Context(), strings.NewReader("1,Ada\n"), wrong, plainOptions()); codeOf(err) != "bad_check" ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestDelimiterAtEnd: a delimiter at the end of all rows, but not of the header, makes no column. If only some rows
// have it, they have another number of fields.
func TestDelimiterAtEnd(t *testing.T) {
	out, err := scan(t.Context(), strings.NewReader("id;name\n1;Ada;\n2;Bob;\n"), plain(), plainOptions())
	if err != nil || out.Rows != 2 || out.BadRows != 0 || out.ColumnCount != 2 || out.Columns[1].Name != "name" {
		t.Errorf("%+v, %v", out, err)
	}
	for text, want := range map[string]string{
		"id;name\n1;Ada;\n2;Bob\n":   "the number of fields is 3, not 2",
		"id;name\n1;Ada;\n2;Bob;x\n": "the number of fields is 3, not 2",
	} {
		_, err := scan(t.Context(), strings.NewReader(text), plain(), plainOptions())
		if codeOf(err) != badRows || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestMissingColumnAskedFor: the failure names the setting that asks for a column, and the one that helps.
func TestMissingColumnAskedFor(t *testing.T) {
	for want, set := range map[string]func(*In){
		`column "n" (asked for by types.n) missing; X`: func(in *In) {
			in.Types = map[string]string{"n": "int"}
		},
		`column "n" (asked for by unique, types.n) missing; X`: func(in *In) {
			in.Types, in.Unique = map[string]string{"n": "int"}, []string{"n"}
		},
		`column "n" (asked for by not_null) missing; X`: func(in *In) {
			in.NotNull = []string{"n"}
		},
		`columns "a", "n" (asked for by unique) missing; X`: func(in *In) {
			in.Required, in.Unique = []string{"a"}, []string{"n"}
		},
	} {
		in := plain()
		in.Header = "no"
		set(&in)
		_, err := scan(t.Context(), strings.NewReader("Rome,1\n"), in, plainOptions())
		want = strings.Replace(want, "X", "the first row (Rome, 1) is not taken for the header (header=no): --set "+
			"header=yes if it is; no header: --set columns=… (names of the columns: 2)", 1)
		if codeOf(err) != "missing_column" || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// TestNotRows: a file that is no table fails with a code of its own.
func TestNotRows(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "empty",
		"\n \r\n":                            "empty",
		" \n<!DOCTYPE html>\n<p>Login</p>\n": "html",
		"<html lang=en>\n":                   "html",
		"<?xml version=\"1.0\"?><a/>\n":      "xml",
		"%PDF-1.7\n\xe2\xe3\xcf\xd3\n":       "binary",
		"BMI,age\nJos\xe9,2\n":               "bad_encoding",
		"a\x00bcdef":                         "binary",
		"\x01\x02\xff":                       "binary",
		"a,<b>\n1,2\n":                       "",
	} {
		_, err := scan(t.Context(), strings.NewReader(text), plain(), plainOptions())
		if codeOf(err) != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestBadPercent: bad rows are allowed as a number, as a share, or not at all.
func TestBadPercent(t *testing.T) {
	text := "a,b\n" + strings.Repeat("1,2\n", 95) + strings.Repeat("x\n", 5)
	for _, c := range []struct {
		most    int64
		percent float64
		code    string
	}{{0, 0, badRows}, {4, 0, badRows}, {5, 0, ""}, {-1, 0, ""}, {0, 5, ""}, {0, 4.9, badRows}, {5, 1, ""}} {
		in := plain()
		in.MaxBadRows, in.MaxBadPercent = c.most, c.percent
		if _, err := scan(t.Context(), strings.NewReader(text), in, plainOptions()); codeOf(err) != c.code {
			t.Errorf("%d and %g %%: %v", c.most, c.percent, err)
		}
	}
	for percent := range int64(101) {
		if got := (In{MaxBadPercent: float64(percent)}).allowed(100); got != percent {
			t.Errorf("%d %% of 100 rows are %d", percent, got)
		}
	}
	if got := (In{MaxBadPercent: 0.57}).allowed(10_000); got != 57 {
		t.Errorf("0.57 %% of 10,000 rows are %d", got)
	}
}

// TestNamedDelimiter: the line sep=; is no row, also if --set names the delimiter, but it counts as a line. A header
// that only begins with sep= is a header.
func TestNamedDelimiter(t *testing.T) {
	for text, want := range map[string]struct {
		delimiter string
		names     []string
		line      int64
	}{
		"sep=;\nid;name\n1;x\n":   {"auto", []string{"id", "name"}, 3},
		"sep=;\rid;name\r1;x\r":   {";", []string{"id", "name"}, 3},
		"sep=;\nid,name\n1,x\n":   {",", []string{"sep=;"}, 2},
		"sep=x\nid\n1\n":          {"auto", []string{"sep=x"}, 2},
		"sep=;a,name\n1,x\n2,y\n": {"auto", []string{"sep=;a", "name"}, 2},
	} {
		in := plain()
		in.Delimiter = want.delimiter
		r, err := newRules(in)
		must.OK(t, err)
		tab, err := openTable(t.Context(), strings.NewReader(text), r, plainOptions())
		must.OK(t, err)
		if err := tab.next(); err != nil || !slices.Equal(tab.names, want.names) || tab.recordLine != want.line {
			t.Errorf("%q: %v, row at line %d, %v", text, tab.names, tab.recordLine, err)
		}
	}
}

// TestLongFirstRecord: the first record is longer than the sample that is read to detect the dialect.
func TestLongFirstRecord(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, header := range []string{"auto", "yes", "no"} {
		in := plain()
		in.Header = header
		text := fmt.Sprintf("%s;%s;%s\n1;2;3\n4;5;6\n", long, long, long)
		out, err := scan(t.Context(), strings.NewReader(text), in, plainOptions())
		wantRows := int64(2)
		if header == "no" {
			wantRows = 3
		}
		if err != nil || out.Rows != wantRows || out.BadRows != 0 || out.ColumnCount != 3 || out.Delimiter != ";" {
			t.Errorf("header %s: %v, %d rows, %d bad, %d columns by %q", header, err, out.Rows, out.BadRows, out.ColumnCount,
				out.Delimiter)
		}
	}
}

// TestSkipTooMuch: lines to skip that do not fit in the sample are refused, so that none of them counts as a row.
func TestSkipTooMuch(t *testing.T) {
	in, o := plain(), plainOptions()
	in.Skip, in.Header, o.maxField = 2000, "no", 1024
	text := strings.Repeat(strings.Repeat("x", 59)+"\n", 2000) + "1,2\n"
	if _, err := scan(t.Context(), strings.NewReader(text), in, o); codeOf(err) != "bad_check" {
		t.Error(err)
	}
}

// TestBufferSizes: a file ends exactly where a buffer does, or one byte before or after.
func TestBufferSizes(t *testing.T) {
	for _, size := range []int{64 << 10, 128 << 10, 256 << 10, 512 << 10} {
		for _, n := range []int{size - 1, size, size + 1} {
			for _, end := range []string{"x", "\n", "\""} {
				text := "\"" + strings.Repeat("x", n-2) + end
				if end != "\"" {
					text = text[1:]
				}
				in := plain()
				in.Header = "no"
				out, err := scan(t.Context(), strings.NewReader(text), in, plainOptions())
				if err != nil || out.Rows != 1 || out.BadRows != 0 || out.ColumnCount != 1 {
					t.Errorf("%d bytes and %q: %v, %d rows, %d bad, %d columns", n, end, err, out.Rows, out.BadRows, out.ColumnCount)
				}
			}
		}
	}
}

// TestManyColumns: with very many columns the output stays below one MiB and has the number of columns.
func TestManyColumns(t *testing.T) {
	var text bytes.Buffer
	for row := range 2 {
		for i := range maxColumns {
			if i > 0 {
				text.WriteByte(',')
			}
			fmt.Fprintf(&text, "%d%s", i+row, strings.Repeat("\x01", 500))
		}
		text.WriteByte('\n')
	}
	out, err := scan(t.Context(), bytes.NewReader(text.Bytes()), plain(), plainOptions())
	if err != nil || out.ColumnCount != maxColumns || len(out.Columns) < 100 {
		t.Fatalf("%v, %d of %d columns", err, len(out.Columns), out.ColumnCount)
	}
	if j, err := json.Marshal(out); err != nil || len(j) > 1<<20 {
		t.Errorf("%d bytes of output, %v", len(j), err)
	}
}

func TestUniqueNames(t *testing.T) {
	for header, want := range map[string]string{
		"":                "column_1",
		"a,b":             "a,b",
		"a,a,a":           "a,a_2,a_3",
		"a,a_2,a,a":       "a,a_2,a_3,a_4",
		",,column_1":      "column_1,column_2,column_1_2",
		" a ,a,":          "a,a_2,column_3",
		"a,a,a_2,a_2,a_3": "a,a_4,a_2,a_2_2,a_3",
	} {
		names := uniqueNames(bytes.Split([]byte(header), []byte(",")))
		if got := strings.Join(names, ","); got != want {
			t.Errorf("%q becomes %q, want %q", header, got, want)
		}
	}
}

func TestSniffEOL(t *testing.T) {
	got := map[string]byte{}
	for _, s := range []string{"", "a", "a\n", "a\r\n", "a\rb\r", "\"a\nb\"\rc", "\"a\rb\"\nc", "\"a\rb", "a\rb\nc"} {
		got[s] = sniffEOL([]byte(s), '"')
	}
	want := map[string]byte{"": '\n', "a": '\n', "a\n": '\n', "a\r\n": '\n', "a\rb\r": '\r', "\"a\nb\"\rc": '\r',
		"\"a\rb\"\nc": '\n', "\"a\rb": '\n', "a\rb\nc": '\n'}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
