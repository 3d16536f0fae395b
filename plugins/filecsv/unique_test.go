package filecsv

import (
	"bytes"
	"encoding/csv"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
)

func TestSorter(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint64Range(0, 20)
		triples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) triple {
			return triple{number.Draw(t, "a"), number.Draw(t, "b"), rapid.Uint64().Draw(t, "c")}
		}), 0, 300).Draw(t, "triples")
		limit := rapid.IntRange(1, 100).Draw(t, "limit")
		s := sorter{limit: limit}
		defer s.close()
		for _, tr := range triples {
			must.OK(t, s.add(t.Context(), tr))
			if n := len(slices.Concat(s.parts...)); n > max(limit, partsInMemory) {
				t.Fatalf("%d triples in memory, %d allowed", n, limit)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Fatalf("the temporary file has a name: %v %v", left, err)
		}
		var got []triple
		must.OK(t, s.each(t.Context(), func(tr triple) error { got = append(got, tr); return nil }))
		want := slices.Clone(triples)
		slices.SortFunc(want, triple.compare)
		if d := cmp.Diff(want, got); d != "" && len(want) > 0 {
			t.Fatal(d)
		}
	})
}

func TestNoTempSpace(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	s := sorter{limit: partsInMemory}
	for range partsInMemory {
		must.OK(t, s.add(t.Context(), triple{1}))
	}
	if err := s.add(t.Context(), triple{2}); codeOf(err) != "temp_file" {
		t.Errorf("got %v", err)
	}
}

// TestUnique compares with a map, with values in memory and in the temporary file.
func TestUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[ab]{0,3}`)
		rows := rapid.SliceOfN(rapid.SliceOfN(value, 2, 2), 0, 60).Draw(t, "rows")
		limit := rapid.SampledFrom([]int{1, 20, 1000}).Draw(t, "limit")
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		w.Write([]string{"one", "two"})
		w.WriteAll(rows)

		in := plain()
		in.Unique = []string{"two", "one"}
		in.MaxBadRows = 1000
		o := plainOptions()
		o.spillRows = limit
		out, err := scan(t.Context(), bytes.NewReader(text.Bytes()), in, o)
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

// repeated returns the expected bad rows for the unique columns one and two.
func repeated(rows [][]string) (bad []BadRow) {
	first := [2]map[string]int{{}, {}}
	for i, row := range rows {
		line, said := i+2, false
		for c, name := range []string{"one", "two"} {
			before, ok := first[c][row[c]]
			switch {
			case row[c] == "":
			case !ok:
				first[c][row[c]] = line
			case !said:
				said = true
				bad = append(bad, BadRow{int64(line), name, "repeats the value of line " + strconv.Itoa(before)})
			}
		}
	}
	return bad
}

// TestManyDuplicates: the duplicates that were found also go to a temporary file.
func TestManyDuplicates(t *testing.T) {
	const rows = 20_000
	text := "id\n" + strings.Repeat("same\n", rows)
	in := plain()
	in.Unique = []string{"id"}
	in.MaxBadRows = 100
	o := plainOptions()
	o.spillRows = 1000
	out, err := scan(t.Context(), strings.NewReader(text), in, o)
	want := `19,999 of 20,000 rows bad (100 allowed), the first on line 3: column "id": repeats the value of line 2`
	if codeOf(err) != badRows || err.Error() != want || out.BadRows != rows-1 {
		t.Errorf("got %v, %d bad rows; want %s", err, out.BadRows, want)
	}
}
