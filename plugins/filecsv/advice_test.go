package filecsv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestAdvice: a file that passes but may be meant otherwise gets the setting as advice, and nothing changes.
func TestAdvice(t *testing.T) {
	const commas = `column "price" is text and looks like numbers with a decimal comma, such as "3,14": --set decimal=,`
	for name, c := range map[string]struct {
		text, want string
		set        func(*In)
	}{
		"decimal commas":   {"id;price\n1;3,14\n2;-0,5\n3;7\n", commas, nil},
		"nearly all":       {"price\n\"3,14\"\n" + strings.Repeat("\"1,5\"\n", 9) + "3\nn/a\n", commas, nil},
		"too few":          {"price;x\n1,5;1\n3,14;2\nn/a;3\n", "", nil},
		"with points, too": {"price;x\n3,14;1\n1.234,50;2\n", commas, nil},
		"thousands":        {"price;x\n1,234;1\n12,500;2\n", "", nil},
		"asked for":        {"price;x\n1,5;1\n3,14;2\n", "", func(in *In) { in.Decimal = "," }},
		"another type": {"price;x\n1,5;1\n3,14;2\n", "", func(in *In) {
			in.Types = map[string]string{"price": "enum:1,5|3,14"}
		}},
		"text": {"price;x\nred;1\n1 2;2\n", "", nil},
		"allowed bad rows": {"id;at\n1;2026-02-03\n2;03.02.2026\nx;2026-02-03\n", `2 of 3 rows bad, line 3: column "at": not a date ` +
			`like YYYY-MM-DD: "03.02.2026"; --set date_formats=D.M.YYYY`, func(in *In) {
			in.Types, in.MaxBadRows = map[string]string{"at": "date", "id": "int"}, 5
		}},
		"day or month": {"id;at\n1;03/02/2026\n", `1 of 1 rows bad, line 2: column "at": not a date like YYYY-MM-DD: ` +
			"\"03/02/2026\"; --set date_formats=DD/MM/YYYY or --set date_formats=MM/DD/YYYY", func(in *In) {
			in.Types, in.MaxBadRows = map[string]string{"at": "date"}, 5
		}},
	} {
		in := plain()
		if c.set != nil {
			c.set(&in)
		}
		if out, err := scan(t.Context(), strings.NewReader(c.text), in, plainOptions()); err != nil || out.Advice != c.want {
			t.Errorf("%s: %q, %v, want %q", name, out.Advice, err, c.want)
		}
	}
}

// TestSecondFault: an error of the encoding hides no other fault. Bad rows do not hide a text column that looks like
// numbers.
func TestSecondFault(t *testing.T) {
	for text, want := range map[string]string{
		"id;name;price\n1;Ren\xe9;3,14\n2;Jo\n": "\nread as windows-1252: 1 of 2 rows bad, the first on line 3: the number of " +
			"fields is 2, not 3\ncolumn \"price\" is text and looks like numbers with a decimal comma, such as \"3,14\": --set " +
			"decimal=,",
		"id;name;price\n1;Ren\xe9;3,14\n2;Jo;1,5\n": "\nread as windows-1252: column \"price\" is text and looks like numbers " +
			"with a decimal comma, such as \"3,14\": --set decimal=,",
		"day;name;price\n03.02.2026;Ren\xe9;3,5\nday;name;price\n": "\nread as windows-1252: 2 of 2 rows bad, the first on " +
			"line 2: column \"day\": not a date like YYYY-MM-DD: \"03.02.2026\"; --set date_formats=D.M.YYYY\nline 2: column " +
			"\"price\": not a decimal number: \"3,5\"; with a decimal comma: --set decimal=,\nthe header comes again; once that " +
			"is mended, no other row is bad: --set max_bad_rows=1",
		"id;name;price\n1;Ren\xe9;3\nid;name;price\n": "\nread as windows-1252: 1 of 2 rows bad, the first on line 3: the " +
			"header comes again; no other row is bad: --set max_bad_rows=1",
		"id;name;price\n1;Ren\xe9;3\n2;Jo;1\n": "--set encoding=koi8-r",
	} {
		path := filepath.Join(t.TempDir(), "a.csv")
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		in := plain()
		if strings.HasPrefix(text, "day") {
			in.Types = map[string]string{"day": "date", "price": "decimal"}
		}
		g := scanned(t, path, in, plainOptions())
		if g.Code != badEncoding || g.Again || !strings.HasSuffix(g.Error, want) ||
			!strings.HasPrefix(g.Error, "not UTF-8 at byte ") {
			t.Errorf("%q: %+v, want …%s", text, g, want)
		}
	}
}
