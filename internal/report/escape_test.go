package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/must"
)

// nasty is what a terminal, a spreadsheet or a reader of right-to-left text would act on.
var nasty = []string{"\x1b[2J", "\u009b2J", "\x7f", "a\u202ecod.exe", "\u2066x\u2069", "\u200fx", "\U000e0041",
	"\u2028", "\x9b2J", "\ufeff"}

func TestCell(t *testing.T) {
	for in, want := range map[string]string{
		`=cmd|' /C calc'!A0`: `'=cmd|' /C calc'!A0`, "+1+1": "'+1+1", "-2+3": "'-2+3", "@SUM(A1)": "'@SUM(A1)",
		"＝1+1": "'＝1+1",
		"\t=1": "' =1", "\r=1": `'\r=1`, " =1": "' =1", "\u202e=1": `'\u202e=1`, "-": "'-", "--x": "'--x", "\tx": "' x",
		"-1": "-1", "+1.5": "+1.5", "-1e9": "-1e9", "-5%": "-5%", ".5": ".5", "": "", "a=b": "a=b", "x\ny": "x y",
		"\x1b[2Jx": `\x1b[2Jx`,
		"-1\n=2":   "'-1 =2", "2026-11-20": "2026-11-20", `{"a":"=1"}`: `{"a":"=1"}`,
	} {
		if got := cell(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// TestExcel: CSV for Excel has a byte order mark and semicolons, and no cell is a formula, even if Excel splits cells
// at commas.
func TestExcel(t *testing.T) {
	type row struct {
		Text string   `json:"text"`
		Next string   `json:"next"`
		Took Duration `json:"took"`
	}
	var out bytes.Buffer
	w, err := NewRows[row](&Printer{Out: &out, Format: CSV, Excel: true}, nil, nil)
	must.OK(t, err)
	for _, text := range []string{"a,b", "=1", "a,=1", `a,"=1"`, "a, @x,-5,", "a;=1"} {
		must.OK(t, w.Write(row{text, "ä", Duration(1234 * time.Millisecond)}))
	}
	must.OK(t, w.Close())
	want := "\xef\xbb\xbftext;next;took\na,b;X\n'=1;X\na,'=1;X\n\"a,'\"\"=1\"\"\";X\na,' @x,-5,;X\n\"a;=1\";X\n"
	want = strings.ReplaceAll(want, "X", "ä;1,234")
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// FuzzCSV: no cell is a formula, or has characters on which a terminal acts. With Raw each cell is the text itself.
func FuzzCSV(f *testing.F) {
	for _, text := range append(nasty, "=1", " \u202e@x", "-1", "-", "plain") {
		f.Add(text)
	}
	type row struct {
		Text string `json:"text"`
	}
	f.Fuzz(func(t *testing.T, text string) {
		written := func(raw bool) (string, string) {
			var out bytes.Buffer
			w, err := NewRows[row](&Printer{Out: &out, Format: CSV, Raw: raw}, nil, nil)
			if err == nil {
				err = w.Write(row{text})
			}
			if err == nil {
				err = w.Close()
			}
			must.OK(t, err)
			all, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
			must.OK(t, err)
			if text == "" {
				return "", out.String()
			}
			return all[1][0], out.String()
		}
		shown, whole := written(false)
		if strings.IndexAny(strings.TrimSpace(shown), "=+-@＝＋－＠") == 0 && !plainNumber().MatchString(shown) {
			t.Errorf("%q is a formula: %q", text, shown)
		}
		if strings.ContainsFunc(whole, func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }) ||
			!utf8.ValidString(whole) {
			t.Errorf("%q is written %q", text, whole)
		}
		if raw, _ := written(true); raw != strings.ReplaceAll(text, "\r\n", "\n") { // a reader of CSV makes that of it
			t.Errorf("%q is not itself with Raw: %q", text, raw)
		}
	})
}

// FuzzMarshal: JSON keeps its value, and has no characters on which a terminal acts.
func FuzzMarshal(f *testing.F) {
	for _, text := range nasty {
		f.Add(text, []byte(`{"a":"`+text+`"}`))
	}
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		value := map[string]any{"text": text, "payload": Bytes(payload)}
		got, err := Marshal(value)
		must.OK(t, err)
		if bytes.ContainsFunc(bytes.TrimSuffix(got, []byte("\n")), func(r rune) bool { return r < ' ' || invisible(r) }) ||
			!utf8.Valid(got) {
			t.Errorf("%q", got)
		}
		plain, err := json.Marshal(value)
		must.OK(t, err)
		var one, other any
		if err := json.Unmarshal(got, &one); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if err := json.Unmarshal(plain, &other); err != nil || !reflect.DeepEqual(one, other) {
			t.Errorf("%q has another value than %q", got, plain)
		}
		var lines bytes.Buffer
		if _, err := JSONLines(&lines).Write(plain); err != nil || bytes.ContainsFunc(lines.Bytes(), invisible) {
			t.Errorf("%q, %v", lines.Bytes(), err)
		}
	})
}
