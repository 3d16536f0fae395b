package filter_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/filter"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestParse(t *testing.T) {
	now := at("2026-11-20T10:00:00Z")
	for s, want := range map[string]ledger.Filter{
		"": {},
		"  state:dead  kind:a,b ": {States: []ledger.State{ledger.StateDead},
			Also: []ledger.Filter{{Kinds: []string{"a", "b"}}}},
		`error~"not found" key~"a b"`:  {ErrorHas: "not found", Also: []ledger.Filter{{KeyHas: "a b"}}},
		"key:https://x/?a=b:c":         {Key: "https://x/?a=b:c"},
		"key:/in/*":                    {Prefix: "/in/"},
		"scope:":                       {Scopes: []string{""}},
		"since:2h":                     {Since: now.Add(-2 * time.Hour)},
		"since:7d":                     {Since: now.Add(-7 * 24 * time.Hour)},
		"since:2026-11-19T00:00:00Z":   {Since: at("2026-11-19T00:00:00Z")},
		"until:2026-11-19T10:30":       {Until: time.Date(2026, 11, 19, 10, 30, 0, 0, time.Local)},
		"priority:-1,2":                {Priorities: []int16{-1, 2}},
		"added:2h":                     {AddedFrom: now.Add(-2 * time.Hour)},
		"added:7d..2h":                 {AddedFrom: now.Add(-7 * 24 * time.Hour), AddedTo: now.Add(-2 * time.Hour)},
		"added:..2026-11-19T00:00:00Z": {AddedTo: at("2026-11-19T00:00:00Z")},
		"due:..3d":                     {DueTo: now.Add(-3 * 24 * time.Hour)},
		"due:2026-12-01T00:00:00Z":     {DueFrom: at("2026-12-01T00:00:00Z")},
		"failing:2h":                   {FailingFrom: now.Add(-2 * time.Hour)},
		"failing:..7d":                 {FailingTo: now.Add(-7 * 24 * time.Hour)},
		"recovered:7d..2h":             {RecoveredFrom: now.Add(-7 * 24 * time.Hour), RecoveredTo: now.Add(-2 * time.Hour)},
		"outcome:failed,done":          {Outcomes: []ledger.Outcome{ledger.OutcomeFailed, ledger.OutcomeDone}},
		"output.a.b:x,y": {Fields: []ledger.FieldTerm{{Of: "output", Path: []string{"a", "b"}, Op: ":",
			Values: []string{"x", "y"}}}},
		`payload.name~"a, b"`: {Fields: []ledger.FieldTerm{{Of: "payload", Path: []string{"name"}, Op: "~",
			Values: []string{"a, b"}}}},
		"output.ms>1e3": {Fields: []ledger.FieldTerm{{Of: "output", Path: []string{"ms"}, Op: ">",
			Values: []string{"1e3"}}}},
		"id:1,2 agent:host/1 code:dns": {IDs: []int64{1, 2}, Also: []ledger.Filter{{Agents: []string{"host/1"}},
			{Codes: []string{"dns"}}}},
	} {
		got, err := filter.Parse(s, now)
		if err != nil {
			t.Errorf("%q: %v", s, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", s, d)
		}
	}
	for _, c := range []struct {
		filter, reason string
		column, length int
		word           string
	}{
		{"state:broken", `"broken" is not a state`, 1, 12, "broken"},
		{"kind:k dead", "not of the form", 8, 4, "dead"},
		{"kind:k  stat:dead x:y", `unknown term "stat:"`, 9, 9, "stat:"},
		{"é~x", `unknown term "é~"`, 1, 3, "é~"},
		{"key:", "key: has no value", 1, 4, ""},
		{`kind:k key~"é b" id:x`, `"x" is not an id`, 18, 4, ""},
		{`key:"a b`, "a quote is not closed", 5, 1, ""},
		{"since:yesterday", "neither a duration", 1, 15, ""},
		{"added:x..", `"x" is neither`, 1, 9, ""},
		{"due:..-1d", `"-1d" is neither`, 1, 9, ""},
		{"failing:yes", `"yes" is neither`, 1, 11, ""},
		{"recovered:..", `"" is neither`, 1, 12, ""},
		{"added:1h..", `"" is neither`, 1, 10, ""},
		{"priority:3", `"3" is not a priority: -2 … 2`, 1, 10, ""},
		{"kind~a", `unknown term "kind~"`, 1, 6, "kind~"},
		{":a", "not of the form", 1, 2, ""},
		{"outcome:good", `"good" is not an outcome`, 1, 12, "good"},
		{"output.n:>0", "output.n>0, without the colon", 1, 11, ""},
		{"output.:a", "output. names no field: output.NAME:", 1, 9, ""},
		{"payload.a..b~c", "names no field", 1, 14, ""},
		{"output.a>b", `"b" is not a number`, 1, 10, ""},
		{"output.a:", "output.a: has no value", 1, 9, ""},
		{"output:a", `unknown term "output:"`, 1, 8, "output:"},
		{"key>a", `unknown term "key>"`, 1, 5, "key>"},
	} {
		_, err := filter.Parse(c.filter, now)
		var bad *filter.Error
		if !errors.Is(err, ledger.ErrInvalid) || !errors.As(err, &bad) {
			t.Errorf("%q: got %v", c.filter, err)
		} else if !strings.Contains(bad.Reason, c.reason) || bad.Column != c.column || bad.Length != c.length ||
			bad.Word != c.word {
			t.Errorf("%q: got %+v, want %+v", c.filter, bad, c)
		}
	}
}

// TestManyTerms: no filter is longer than a database takes.
func TestManyTerms(t *testing.T) {
	for n, want := range map[int]string{200: "", 201: "more than 200 terms"} {
		_, err := filter.Parse(strings.Repeat("key:~a ", n), at("2026-11-20T10:00:00Z"))
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d terms: %v", n, err)
		}
	}
}

// A term without values matches nothing. No text has one.
func TestEmptyFieldTerm(t *testing.T) {
	r := &ledger.Record{ID: 1, Stored: ledger.Stored{Payload: []byte(`{"a":"3"}`)}}
	for op, value := range map[string]string{":": "3", "~": "3", "<": "4", ">": "2"} {
		for _, values := range [][]string{nil, {value}} {
			f := ledger.Filter{Fields: []ledger.FieldTerm{{Of: "payload", Path: []string{"a"}, Op: op, Values: values}}}
			if f.Match(r, time.Now()) != (values != nil) {
				t.Errorf("%s%q: %v", op, values, values == nil)
			}
		}
	}
}

// Payload and output may be anything: JSON or not.
func TestFieldTerms(t *testing.T) {
	now := at("2026-11-20T10:00:00Z")
	for _, c := range []struct {
		where, payload, output string
		want                   bool
	}{
		{"payload.country:de", `{"country":"de"}`, "", true},
		{"payload.country:de", `{"country":"\u0064e"}`, "", true},
		{"payload.country:at,de", `{"country":"de"}`, "", true},
		{"payload.country:de", `{"country":"den"}`, "", false},
		{"payload.country~e", `{"country":"den"}`, "", true},
		{"payload.country:de", "", `{"country":"de"}`, false},
		{"output.status:404", "", `{"status":404}`, true},
		{"output.status:404", "", `{"status":"404"}`, true},
		{"output.status:404", "", `{"status":404.0}`, false}, // as it was typed
		{"output.status>403.5", "", `{"status":404.0}`, true},
		{"output.status<404", "", `{"status":404.0}`, false},
		{"output.status>1", "", `{"status":"many"}`, false},
		{"output.a.b:x", "", `{"a":{"b":"x"}}`, true},
		{"output.a:x", "", `{"a":{"b":"x"}}`, false},
		{`output.a~"b"`, "", `{"a":{"b" : "x"}}`, true},
		{"output.ok:true", "", `{"ok": true}`, true},
		{"output.a:null", "", `{"a":null}`, false},
		{"output.a:x", "", `no JSON`, false},
		{"output.a:x", "", "\x00\xff", false},
		{"output.a~z", "", `{"a":"\u0000z"}`, true},
		{"output.a:x payload.a:y", `{"a":"y"}`, `{"a":"x"}`, true},
		{"output.a:x payload.a:y", `{"a":"x"}`, `{"a":"y"}`, false},
	} {
		f, err := filter.Parse(c.where, now)
		must.OK(t, err)
		if got := f.Match(&ledger.Record{ID: 1, Stored: ledger.Stored{Payload: []byte(c.payload)},
			Output: []byte(c.output)}, now); got != c.want {
			t.Errorf("%s of payload %q and output %q: %v", c.where, c.payload, c.output, got)
		}
	}
}

// FuzzParse: a text is refused with an *Error, or means the same with other spaces. A filter joined with itself matches
// the same items. Any text in quotes is searched for literally.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`state:dead kind:urlcheck error~"a b" since:2h id:1,2 key:x*`, `key:"`, "key:*", "scope:",
		"id:0", "since:-1h", "key~\x00", "agent:a,,b", "kind:a kind:b", "é~x", "output.a.b:x", "payload.a<1 outcome:done"} {
		f.Add(s, "a \t*\"x")
	}
	now := at("2026-11-20T10:00:00Z")
	records := []ledger.Record{
		{ID: 1, Identity: ledger.Identity{Kind: "k", Key: "x y*"}, Stored: ledger.Stored{CreatedAt: now}, Epoch: 1,
			Work: &ledger.Work{State: ledger.StateReady, Due: now, Epoch: 1}},
		{ID: 2, Identity: ledger.Identity{Kind: "urlcheck", Scope: "s", Key: "key"},
			Stored: ledger.Stored{CreatedAt: now.Add(-3 * time.Hour)},
			Epoch:  1, Work: &ledger.Work{State: ledger.StateDead, Due: now, Epoch: 1, Attempt: 1},
			Last: &ledger.Attempt{ItemID: 2, Attempt: 1, Outcome: ledger.OutcomeFailed, Error: "a b", Code: "c",
				FinishedAt: now}},
	}
	matches := func(f ledger.Filter) (m [2]bool) {
		for i := range records {
			m[i] = f.Match(&records[i], now)
		}
		return m
	}
	f.Fuzz(func(t *testing.T, s, text string) {
		got, err := filter.Parse(s, now)
		if err != nil {
			if !errors.Is(err, ledger.ErrInvalid) {
				t.Errorf("%q: %v", s, err)
			}
		} else {
			spaced, err := filter.Parse("\n\t "+s+"  ", now)
			if d := cmp.Diff(got, spaced); d != "" || err != nil {
				t.Errorf("%q with spaces around: %v\n%s", s, err, d)
			}
			twice, err := filter.Parse(s+" "+s, now)
			if err != nil || matches(twice) != matches(got) {
				t.Errorf("%q matches %v, and twice %v, %v", s, matches(got), matches(twice), err)
			}
		}
		if text == "" || strings.ContainsAny(text, `"`) || !utf8.ValidString(text) {
			return
		}
		quoted, err := filter.Parse(`key~"`+text+`" error~"`+text+`"`, now)
		want := ledger.Filter{KeyHas: text, Also: []ledger.Filter{{ErrorHas: text}}}
		if d := cmp.Diff(want, quoted); d != "" || err != nil {
			t.Errorf("%q in quotes: %v\n%s", text, err, d)
		}
	})
}

// TestExamples: every term has an example and a line in the help. The example parses.
func TestExamples(t *testing.T) {
	examples := strings.Fields(filter.Terms)
	for _, example := range examples {
		f, err := filter.Parse(example, time.Now())
		if err != nil || cmp.Equal(f, ledger.Filter{}) || !strings.Contains(filter.Help, " "+example) {
			t.Errorf("%s: %+v, %v; help:\n%s", example, f, err, filter.Help)
		}
	}
	for _, o := range filter.Offers {
		if _, err := filter.Parse(o.Text, time.Now()); o.About == "" && err != nil {
			t.Errorf("%s is offered: %v", o.Text, err)
		}
	}
	for _, name := range filter.Names {
		if !slices.ContainsFunc(examples, func(e string) bool { return strings.HasPrefix(e, name) }) {
			t.Errorf("%s has no example", name)
		}
	}
}
