package filecsv

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, Plugin()) }

// plain returns the payload with the defaults of the SDK.
func plain() In {
	return In{
		Delimiter: "auto", Encoding: "auto", Header: "auto", Quotes: "auto",
		DateFormats: []string{"YYYY-MM-DD", "YYYY-MM-DD hh:mm:ss", "YYYY-MM-DDThh:mm:ssZ"},
	}
}

func plainOptions() options {
	return options{maxBytes: 16 << 30, maxField: 1 << 20, maxUnique: maxUnique, progress: func(int64) {}}
}

// payload is a payload from the command line: it has only the fields that were set.
type payload map[string]any

// corpusFile returns the absolute path of a file of the corpus, as ledgerd gives it.
func corpusFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	must.OK(t, err)
	return path
}

// TestProcess works the corpus in a real plugin process. The defaults of the SDK must give the golden output.
func TestProcess(t *testing.T) {
	h := sdktest.New(t, Plugin(), sdktest.Options{})
	for _, name := range []string{"plain.csv", "empty.csv", "windows1252.csv", "unterminated.csv", "utf16le.csv",
		"plain.csv.gz", "ragged.csv"} {
		r := h.Run(sdktest.Task{Payload: payload{"path": corpusFile(t, name)}})
		text, err := os.ReadFile(filepath.Join("testdata", "golden", name+".json"))
		must.OK(t, err)
		var want golden
		must.OK(t, json.Unmarshal(text, &want))
		outcome := "done"
		if want.Code != "" {
			outcome = "failed"
		}
		if r.Outcome != outcome || r.Final != (want.Code != "") || r.Code != want.Code || r.Error != want.Error {
			t.Errorf("%s: %s, final %v, %s %s; want %s %s %s", name, r.Outcome, r.Final, r.Code, r.Error, outcome, want.Code,
				want.Error)
		}
		var got Out
		if r.Output != nil { // no findings, no output
			got = sdktest.Decode[Out](t, r)
		}
		got.DurationMS = 0
		if d := cmp.Diff(want.Output, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
}

// TestProcessPayload: the settings of an item reach the checks.
func TestProcessPayload(t *testing.T) {
	h := sdktest.New(t, Plugin(), sdktest.Options{})
	path := corpusFile(t, "people.csv")
	for name, c := range map[string]struct {
		set         payload
		code, error string
	}{
		"missing": {payload{"required": []string{"phone"}}, "missing_column", `column "phone" missing`},
		"bad rows": {payload{"types": map[string]string{"id": "int"}, "max_bad_rows": 0}, "bad_rows",
			`1 of 12 rows bad, the first on line 3: column "id": not an integer: "x"`},
		"type": {payload{"types": map[string]string{"id": "number"}}, "bad_check",
			`types: column "id": unknown type "number"; there are int, decimal, date, time, bool, email, ` +
				`regexp:PATTERN and enum:A|B|C`},
	} {
		c.set["path"] = path
		r := h.Run(sdktest.Task{Payload: c.set})
		if r.Outcome != "failed" || !r.Final || r.Code != c.code || r.Error != c.error {
			t.Errorf("%s: %s, final %v, %s %s", name, r.Outcome, r.Final, r.Code, r.Error)
		}
	}
	if r := h.Run(sdktest.Task{Payload: payload{"path": path, "header": "maybe"}}); r.Outcome != "failed" || !r.Final ||
		!strings.Contains(r.Error, "header") {
		t.Errorf("header=maybe: %s %s %s", r.Outcome, r.Code, r.Error)
	}
}

// TestRemarkAbove: if most rows do not fit the first row and it looks like a remark, the failure points to that.
func TestRemarkAbove(t *testing.T) {
	h := sdktest.New(t, Plugin(), sdktest.Options{})
	for _, mark := range []string{"#", "//", "--"} {
		text := mark + " from Lyon\nid,name\n1,a\n2,b\n" + mark + " the end\n"
		r := h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, text)}})
		want := "; the first row is " + mark + " from Lyon; if that is a remark: --set comment=" + mark + " passes over"
		if r.Code != badRows || !strings.Contains(r.Error, want) {
			t.Errorf("%s %s, want …%s…", r.Code, r.Error, want)
		}
		if r := h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, text), "comment": mark}}); r.Outcome != "done" {
			t.Errorf("%s %s", r.Code, r.Error)
		}
	}
	r := h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "#id,name\n1,a\n2\n3,c\n")}})
	if strings.Contains(r.Error, "remark") {
		t.Error(r.Error)
	}
}

// TestProcessRejects: all attempts at an item write the same reject file.
func TestProcessRejects(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: map[string]any{"reject_dir": dir}})
	task := sdktest.Task{Payload: payload{"path": corpusFile(t, "ragged.csv")}, Fault: sdktest.Deliver2}
	first := sdktest.Decode[Out](t, h.Run(task)).Rejects
	task.Attempt, task.Fault = 2, sdktest.None
	second := sdktest.Decode[Out](t, h.Run(task)).Rejects
	if first != second || filepath.Dir(first) != dir {
		t.Errorf("rejects in %q, then in %q", first, second)
	}
	want := "line,column,reason,a,b,c\n3,,\"the number of fields is 2, not 3\",1,2\n4,,\"the number of fields is 4, " +
		"not 3\",1,2,3,4\n"
	if d := cmp.Diff(map[string]string{filepath.Base(first): want}, rejectsOf(t, dir)); d != "" {
		t.Error(d)
	}
}

// TestProcessFaults: a cancelled item leaves no reject file. A killed plugin leaves none under the final name. The
// next attempt succeeds.
func TestProcessFaults(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(t.TempDir(), "long.csv")
	text := people(300_000, false)         // long enough for a fault in the middle
	end := bytes.IndexByte(text, '\n') + 1 // of the header
	write(t, path, string(slices.Concat(text[:end], []byte("ragged\n"), text[end:])))
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: map[string]any{"reject_dir": dir}})
	for _, c := range []struct {
		fault   sdktest.Fault
		outcome string
	}{{sdktest.Cancel, "cancelled"}, {sdktest.KillHost, "lost"}, {sdktest.KillPlugin, "crashed"}} {
		r := h.Run(sdktest.Task{Payload: payload{"path": path}, Fault: c.fault, AtProgress: 2})
		if r.Outcome != c.outcome {
			t.Errorf("%s %s %s, want %s", r.Outcome, r.Code, r.Error, c.outcome)
		}
		for name := range rejectsOf(t, dir) {
			if !strings.HasPrefix(name, ".") || c.outcome == "cancelled" {
				t.Errorf("%s: %s was left behind", c.outcome, name)
			}
		}
	}
	r := h.Run(sdktest.Task{Payload: payload{"path": path, "max_bad_rows": 1}, Attempt: 2})
	out := sdktest.Decode[Out](t, r)
	if r.Outcome != "done" || out.Rows != 300_001 || out.BadRows != 1 {
		t.Errorf("%s %s, %d rows, %d bad", r.Outcome, r.Error, out.Rows, out.BadRows)
	}
	if files := rejectsOf(t, dir); len(files) != 1 || files[filepath.Base(out.Rejects)] == "" {
		t.Errorf("%d files, and not %s alone", len(files), out.Rejects)
	}
}

func TestConfig(t *testing.T) {
	for dir, ok := range map[string]bool{"": true, "/var/tmp": true, "rejects": false, "./rejects": false} {
		if err := (&Config{RejectDir: dir}).Validate(); (err == nil) != ok {
			t.Errorf("reject_dir=%q: %v", dir, err)
		}
	}
}

func TestMatch(t *testing.T) {
	for name, want := range map[string]bool{"a.csv": true, "a.tsv.gz": true, "a.txt": true, "a.xlsx": false, "a.gz": false,
		"a.csv.bz2": false} {
		got := slices.ContainsFunc(Plugin().Match, func(glob string) bool {
			ok, err := filepath.Match(glob, name)
			return ok && err == nil
		})
		if got != want {
			t.Errorf("%s is taken: %v", name, got)
		}
	}
}

func TestConformance(t *testing.T) { sdktest.Conformance(t, Plugin()) }
