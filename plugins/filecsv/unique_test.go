package filecsv

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestUnique compares with a simple reading of the rules.
func TestUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[ab]{0,3}`)
		rows := rapid.SliceOfN(rapid.SliceOfN(value, 2, 2), 0, 60).Draw(t, "rows")
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		w.Write([]string{"one", "two"})
		w.WriteAll(rows)

		in := plain()
		in.Unique = []string{"two", "one"}
		in.MaxBadRows = 1000
		out, err := scan(t.Context(), bytes.NewReader(text.Bytes()), in, plainOptions())
		must.OK(t, err)
		want := repeated(rows)
		if out.BadRows != int64(len(want)) {
			t.Fatalf("%d bad rows, want %d", out.BadRows, len(want))
		}
		if d := cmp.Diff(want[:min(len(want), maxSamples)], out.Samples); d != "" && len(want) > 0 {
			t.Fatal(d)
		}
	})
}

// repeated returns the expected bad rows for the unique columns one and two. A bad row does not count for later ones.
func repeated(rows [][]string) (bad []BadRow) {
	first := [2]map[string]int{{}, {}}
	for i, row := range rows {
		line, good := i+2, true
		for c, name := range []string{"one", "two"} {
			if before, known := first[c][row[c]]; known && good {
				good = false
				bad = append(bad, BadRow{int64(line), name, "repeats the value of line " + strconv.Itoa(before)})
			}
		}
		for c := range first {
			if good && row[c] != "" {
				first[c][row[c]] = line
			}
		}
	}
	return bad
}

// TestTooManyUnique: the values of all unique columns together have a limit, and those of bad rows do not count.
func TestTooManyUnique(t *testing.T) {
	in, o := plain(), plainOptions()
	in.Unique, in.MaxBadRows = []string{"a", "b"}, -1
	o.maxUnique = 4
	const fits = "a,b\n1,x\n1,y\n2,\n,y\n"
	out, err := scan(t.Context(), strings.NewReader(fits), in, o)
	if err != nil || out.BadRows != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := scan(t.Context(), strings.NewReader(fits+"3,\n"), in, o); codeOf(err) != "too_big" {
		t.Error(err)
	}
}
