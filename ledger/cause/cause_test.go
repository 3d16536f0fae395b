package cause_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger/cause"
)

func TestOf(t *testing.T) {
	type failure struct{ code, message, key string }
	for _, same := range [][2]failure{
		{{"", "dial tcp 10.0.0.7:443: timeout", "https://a.example/1"},
			{"", "dial tcp 10.0.1.9:80: timeout", "https://b.example/2"}},
		{{"http_404", "not found: /in/a.csv", "/in/a.csv"}, {"http_404", "not found: /in/b.csv", "/in/b.csv"}},
		{{"", "a.csv has no header", "/in/a.csv"}, {"", "report.csv has no header", "/in/report.csv"}},
		{{"", "request 5d41402abc4b2a76b9719d911017c592 failed", "k"},
			{"", "request 7d793037a0760186574b0282f2f435e7 failed", "l"}},
		{{"", `not a date: "32.13.2024" in "day"`, "k"}, {"", `not a date: "a \"b" in "x"`, "l"}},
		{{"", "bad\nline 1", "k"}, {"", "bad\nsomething else", "l"}},
	} {
		a, b := same[0], same[1]
		if x, y := cause.Of(a.code, a.message, a.key), cause.Of(b.code, b.message, b.key); x != y || len(x) != cause.Length {
			t.Errorf("%v has %s, %v has %s", a, x, b, y)
		}
	}
	of := map[string]failure{}
	for _, f := range []failure{{"", "refused", "k"}, {"", "timeout", "k"}, {"http_404", "refused", "k"}, {"", "", "k"}} {
		c := cause.Of(f.code, f.message, f.key)
		if other, known := of[c]; known {
			t.Errorf("%v and %v have one cause", f, other)
		}
		of[c] = f
	}
}
