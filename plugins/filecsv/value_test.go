package filecsv

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

func TestKindOf(t *testing.T) {
	formats, err := newDateFormats(append(plain().DateFormats, "DD.MM.YYYY hh:mm", "M/D/YY"))
	must.OK(t, err)
	for want, values := range map[kind][]string{
		kindInt:     {"0", "-0", "7", "-12", "123456789012345678", "1234567890123456789012", "-1234567890123456789012"},
		kindDecimal: {"0.5", "-0.50", "12.0", "1e3", "1E+05", "2.5e-300", "1.0000000000000000000001", "-1.25"},
		kindBool:    {"true", "FALSE", "Yes", "no"},
		kindDate: {
			"2024-02-29", "0001-01-01", "2024-12-31", "2024-02-29 23:59:59", "2024-02-29 23:59:59.123456",
			"2024-02-29T10:00:00Z", "2024-02-29T10:00:00-03:30", "29.02.2024 07:15", "1/2/24", "12/31/99",
		},
		kindText: {
			"-", "+", ".", "00", "007", "-01", "+5", ".5", "5.", "-5.", "1.2.3", "1e", "1e+", "e5", "1e9999", "1_000", "1,5",
			"1.5_0", "0x1F", "1p3", "1.5p3",
			"Inf", "NaN", "1 2", "١", strings.Repeat("1", maxNumber+1), "t", "y", "on", "truth",
			"2023-02-29", "2024-13-01", "2024-00-10", "2024-01-00", "2024-1-1", "2024-01-32", "2024-01-01x", "2024/01/01",
			"1.1.2024",
		},
	} {
		for _, v := range values {
			if got := (notation{dateFormats: formats}).kindOf([]byte(v)); got != want {
				t.Errorf("%q is %s, want %s", v, got, want)
			}
		}
	}
}

func TestTypes(t *testing.T) {
	r, err := newRules(plain())
	must.OK(t, err)
	for name, c := range map[string]struct{ good, bad []string }{
		"int": {[]string{"0", "+007", "-12"}, []string{"1.0", "1e3", "--1", "1 ", "٣", "+"}},
		"decimal": {[]string{"0", "+.5", "5.", "-1.5E+05", "1e99999"}, []string{".", "1.2.3", "1,5", "Inf", "e5",
			"0x1p3"}},
		"bool": {[]string{"true", "F", "Y", "n", "1", "0", "On", "OFF"}, []string{"2", "ja", "truex"}},
		"date": {[]string{"2024-02-29"}, []string{"2023-02-29", "29.02.2024", "2024-02-29 10:11:12"}},
		"time": {[]string{"2024-02-29", "2024-02-29 10:11:12"}, []string{"2023-02-29", "29.02.2024",
			"2024-02-29 25:00:00"}},
		"email": {[]string{"a@b.c", "a.b+c@sub.example.com", "ü@exämple.de"}, []string{"a", "@b.c", "a@b", "a@",
			"a b@c.d", "A <a@b.c>", "a@[127.0.0.1]", "a@b.c, d@e.f", "a@.com"}},
		"regexp:[ab]|cd":  {[]string{"a", "cd"}, []string{"ab", "xcd", "cdx", "A"}},
		"enum:red|dark:2": {[]string{"red", "dark:2"}, []string{"dark", "Red", "red|dark:2"}},
	} {
		rule, err := r.newRule(name)
		must.OK(t, err)
		for _, v := range c.good {
			if !rule.ok([]byte(v)) {
				t.Errorf("%s refuses %q", name, v)
			}
		}
		for _, v := range c.bad {
			if rule.ok([]byte(v)) {
				t.Errorf("%s takes %q", name, v)
			}
		}
	}
	for _, name := range []string{"", "integer", "regexp", "regexp:(", "enum", "int:5"} {
		if _, err := r.newRule(name); err == nil {
			t.Errorf("%q is a type", name)
		}
	}
}

func TestShown(t *testing.T) {
	long := strings.Repeat("é", 80)
	if got, want := shown("x"+long), "x"+long[:98]+"…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDateFormats(t *testing.T) {
	for _, bad := range []string{"", "YYYY", "2006-01-02", "%d.%m.%Y", "hh:mm:ss"} {
		if _, err := newDateFormats([]string{bad}); codeOf(err) != "bad_check" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDecimalComma(t *testing.T) {
	in := plain()
	in.Decimal = ","
	r, err := newRules(in)
	must.OK(t, err)
	for v, want := range map[string]struct {
		kind         kind
		int, decimal bool
		point        string
	}{
		"1.234,56": {kindDecimal, false, true, "1234.56"}, "-1.234.567": {kindInt, true, true, "-1234567"},
		"1,5": {kindDecimal, false, true, "1.5"}, "12": {kindInt, true, true, "12"}, "1.5": {kindText, false, false, "1.5"},
		"1.2345": {kindText, false, false, "1.2345"}, "1,234.5": {kindText, false, false, "1,234.5"},
		"2024-02-29": {kindDate, false, false, "2024-02-29"}, ",5": {kindText, false, true, ".5"},
	} {
		whole, _ := r.newRule("int")
		decimal, _ := r.newRule("decimal")
		if k, i, d, p := r.kindOf([]byte(v)), whole.ok([]byte(v)), decimal.ok([]byte(v)), string(r.point([]byte(v))); k !=
			want.kind || i != want.int || d != want.decimal || p != want.point {
			t.Errorf("%q: %s %v %v %q, want %+v", v, k, i, d, p, want)
		}
	}
	var c column
	for _, v := range []string{"2,5", "1.000,00", "1.000,0", "10,25"} {
		c.add([]byte(v), r.notation)
	}
	if out := c.summary(); out.Type != "decimal" {
		t.Errorf("%+v", out)
	}
}

// TestTrim: white space around a value does not count, whatever its form.
func TestTrim(t *testing.T) {
	for text, want := range map[string]string{"": "", "a b": "a b", " a\t": "a", "\u00a05": "5", "5\u2003": "5",
		"\u00a0": "", "é": "é", "\xff": "\xff"} {
		if got := trim([]byte(text)); string(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
