package filecsv

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

var update = flag.Bool("update", false, "write the golden files")

// corpus are files as other programs write them. A case without a name has the name of its file.
var corpus = []struct {
	file string
	name string
	set  func(*In)
}{
	{file: "plain.csv"},
	{file: "bom_quoted_header.csv"},
	{file: "utf16le.csv"},
	{file: "utf16be.csv"},
	{file: "utf16le_unmarked.csv"},
	{file: "utf16le_unmarked.csv", name: "utf16le_declared", set: func(in *In) { in.Encoding = encUTF16LE }},
	{file: "utf16le.csv", name: "declared_otherwise_than_marked", set: func(in *In) { in.Encoding = "windows-1252" }},
	{file: "utf16_lone_surrogate.csv"},
	{file: "utf16_odd.csv"},
	{file: "windows1252.csv"},
	{file: "windows1252.csv", name: "windows1252_declared", set: func(in *In) { in.Encoding = "windows-1252" }},
	{file: "bad_utf8.csv"},
	{file: "cut_off.csv"},
	{file: "empty.csv"},
	{file: "empty.csv", name: "empty_but_required", set: func(in *In) { in.Required = []string{"email"} }},
	{file: "only_bom.csv"},
	{file: "only_blank_lines.csv"},
	{file: "header_only.csv"},
	{file: "header_only.csv", name: "missing_column", set: func(in *In) { in.Required = []string{"email", "phone"} }},
	{file: "header_only.csv", name: "missing_columns", set: func(in *In) {
		in.Unique = []string{"Email"}
		in.Types = map[string]string{"age": "int"}
	}},
	{file: "no_last_newline.csv"},
	{file: "blank_lines.csv"},
	{file: "cr_only.csv"},
	{file: "crlf.csv"},
	{file: "mixed_line_ends.csv"},
	{file: "semicolon.csv"},
	{file: "semicolon.csv", name: "delimiter_given", set: func(in *In) { in.Delimiter = "," }},
	{file: "tab.tsv"},
	{file: "tab.tsv", name: "tab_without_quotes", set: func(in *In) { in.Quotes, in.Delimiter = "no", "tab" }},
	{file: "bar.txt"},
	{file: "one_column.csv"},
	{file: "ragged.csv"},
	{file: "ragged.csv", name: "too_many_bad_rows", set: func(in *In) { in.MaxBadRows = 1 }},
	{file: "ragged.csv", name: "just_enough_bad_rows", set: func(in *In) { in.MaxBadRows = 2 }},
	{file: "duplicate_headers.csv"},
	{file: "bare_quote.csv"},
	{file: "text_after_quote.csv"},
	{file: "swallowed.csv"},
	{file: "unterminated.csv"},
	{file: "unterminated.csv", name: "unterminated_without_quotes", set: func(in *In) { in.Quotes = "no" }},
	{file: "quotes_everywhere.csv", set: func(in *In) { in.Required = []string{"column_3"} }},
	{file: "bad_header.csv"},
	{file: "nul.csv"},
	{file: "png.csv"},
	{file: "no_header.csv"},
	{file: "no_header.csv", name: "header_yes", set: func(in *In) { in.Header = "yes" }},
	{file: "plain.csv", name: "header_no", set: func(in *In) { in.Header = "no" }},
	{file: "all_text.csv"},
	{file: "data_like_header.csv"},
	{file: "numbers.csv"},
	{file: "dates.csv"},
	{file: "dates.csv", name: "dates_german", set: func(in *In) {
		in.DateFormats = []string{"D.M.YYYY"}
		in.Types = map[string]string{"german": "date", "iso": "date"}
	}},
	{file: "nulls.csv"},
	{file: "nulls.csv", name: "nulls_given", set: func(in *In) {
		in.Nulls = []string{"NULL", "n/a"}
		in.NotNull = []string{"v"}
	}},
	{file: "people.csv"},
	{file: "people.csv", name: "people_checked", set: func(in *In) {
		in.Types = map[string]string{
			"id": "int", "email": "email", "age": "int", "born": "date", "active": "bool",
			"plan": "enum:free|paid", "code": `regexp:[A-Z]+-\d+`,
		}
		in.NotNull = []string{"email"}
		in.Unique = []string{"email"}
	}},
	{file: "people.csv", name: "unknown_type", set: func(in *In) { in.Types = map[string]string{"id": "integer"} }},
	{file: "people.csv", name: "bad_regexp", set: func(in *In) { in.Types = map[string]string{"id": "regexp:("} }},
	{file: "people.csv", name: "bad_delimiter", set: func(in *In) { in.Delimiter = "::" }},
	{file: "people.csv", name: "bad_date_format", set: func(in *In) { in.DateFormats = []string{"%Y-%m-%d"} }},
	{file: "unique.csv", set: func(in *In) { in.Unique = []string{"id", "email"} }},
	{file: "strange_text.csv"},
	{file: "plain.csv.gz"},
	{file: "two_members.csv.gz"},
	{file: "cut.csv.gz"},
	{file: "damaged.csv.gz"},
	{file: "not_gzip.csv.gz"},
	{file: "gzip_without_name.csv"},
}

// golden is the expected result of a case.
type golden struct {
	Output Out    `json:"output"`
	Code   string `json:"code,omitempty"`
	Error  string `json:"error,omitempty"`
	Again  bool   `json:"again,omitempty"`
}

// scanPath opens a file and scans it.
func scanPath(ctx context.Context, path string, in In, o options) (Out, error) {
	f, err := openFile(path)
	if err != nil {
		return Out{}, err
	}
	defer f.Close()
	return scanFile(ctx, f, in, o)
}

// scanned scans a file as the plugin does.
func scanned(t *testing.T, path string, in In, o options) golden {
	t.Helper()
	o.name = filepath.Base(path)
	out, err := scanPath(t.Context(), path, in, o)
	out.DurationMS = 0
	g := golden{Output: out}
	if err != nil {
		g.Error = err.Error()
		if g.Code, g.Again = verdict(err); g.Code == "" {
			t.Fatalf("%s: %v is no failure", path, err)
		}
	}
	return g
}

func TestCorpus(t *testing.T) {
	for _, c := range corpus {
		if c.name == "" {
			c.name = c.file
		}
		t.Run(c.name, func(t *testing.T) {
			in := plain()
			if c.set != nil {
				c.set(&in)
			}
			got := scanned(t, filepath.Join("testdata", c.file), in, plainOptions())
			path := filepath.Join("testdata", "golden", c.name+".json")
			if *update {
				text, err := json.MarshalIndent(got, "", " ")
				must.OK(t, err)
				must.OK(t, os.WriteFile(path, append(text, '\n'), 0o644))
			}
			text, err := os.ReadFile(path)
			must.OK(t, err)
			var want golden
			must.OK(t, json.Unmarshal(text, &want))
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}
