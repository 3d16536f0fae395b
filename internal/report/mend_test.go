package report

import (
	"slices"
	"strings"
	"testing"
)

// TestProposed: a setting that an error proposes has a value that can be used as it is.
func TestProposed(t *testing.T) {
	for message, want := range map[string]string{
		"not UTF-8 at byte 7; choose how it reads:\n\"é\": --set encoding=windows-1252 or windows-1250; \"й\": --set encoding=koi8-r": "encoding=…",
		"not an integer: \"1.000\"; with a decimal comma: --set decimal=,":                                                            "decimal=,",
		"it is not the header: --set columns=… (names of the columns: 3) or --set skip=LINES; it is: --set header=yes":                "header=yes",
		"--set types.price=decimal makes one":                 "types.price=decimal",
		"if that is a remark: --set comment=# passes over it": "comment=#",
		"no database: --with database=sqlite:PATH":            "",
		"updates rows by a column: --set key=COLUMN":          "",
		"say it: --set encoding=…, or mend it":                "",
		"\"テスト\": --set encoding=shift_jis":                   "encoding=shift_jis",
		"does it? --set header=yes, or --set columns=… (3)":   "header=yes",
		"--set delimiter=';' is one":                          "delimiter=;",
		"\"é\": --set encoding=cp437; \"è\": --set encoding=cp850\nread so: --set decimal=,\nalone: --set comment=#": "encoding=… decimal=, comment=#",
		"--set a=1\n--set a=2": "a=1",
		"--set x=":             "",
		"":                     "",
	} {
		if got := strings.Join(Proposed(message), " "); got != want {
			t.Errorf("%q proposes %q, want %q", message, got, want)
		}
	}
	var f Failures
	for i, set := range []string{"a=1", "b=2", "b=2", "…"} {
		f.Add(int64(i), "k", "", "--set "+set)
	}
	if got := f.Mends(); !slices.Equal(got, []Mend{{"b=2", 2}, {"a=1", 1}}) {
		t.Errorf("%v", got)
	}
}
