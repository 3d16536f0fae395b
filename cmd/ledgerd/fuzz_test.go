package main

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// FuzzAddress: --db names one place, however often it is written down and read again, or is a
// mistake that says what it should be; and a password in it is seen nowhere.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"sqlite:a.db", "sqlite:///x/../y", "sqlite:~/a", "sqlite:", "postgres://u@h/d?search_path=s,t", "postgresql:///d?host=/run", "postgres://[::1]:5/x", "mysql://u:secret99@h",
		"postgres:// u:secret99@h", "postgres://u:sec:ret99@h:x/d", "POSTGRES://u:secret99@h/d", "user:secret99@h", "sqlite:?mode=memory", "postgres://u:%zz@h", "host=h password=secret99"} {
		f.Add(s, "ann", "secret99")
	}
	f.Fuzz(func(t *testing.T, db, user, password string) {
		at, err := parseAddress(db, "--db")
		if err != nil {
			if f := (*failure)(nil); errors.As(err, &f) && f.exit != exitUsage {
				t.Errorf("%q: exit %d", db, f.exit)
			}
		} else {
			if at.path != "" && !filepath.IsAbs(at.path) {
				t.Errorf("%q: the path %q is not absolute", db, at.path)
			}
			full := at.url
			if at.path != "" {
				full = "sqlite:" + at.path
			}
			if again, err := parseAddress(full, "--db"); err != nil || again != at {
				t.Errorf("%q is %+v, and that %+v, %v", db, at, again, err)
			}
		}
		plain := func(s string) bool { return s != "" && s == url.QueryEscape(s) && !strings.ContainsAny(s, "%+") }
		if !plain(user) || !plain(password) || len(password) < 5 || strings.Contains("postgres://"+user+"@host.example:5432/work?search_path=s--db not a Postgres URL special characters of a password are written as %XX", password) {
			return
		}
		for _, scheme := range []string{"postgres", "postgresql", "mysql", "POSTGRES", "x"} {
			for _, rest := range []string{"@host.example:5432/work?search_path=s", "@host.example:x/work", "@host.example/%zz", "@"} {
				text := scheme + "://" + user + ":" + password + rest
				shown := ""
				if at, err := parseAddress(text, "--db"); err != nil {
					shown = err.Error()
				} else {
					shown = at.String() + at.brief()
				}
				if strings.Contains(shown, password) {
					t.Errorf("%q is shown as %q", text, shown)
				}
			}
		}
	})
}

// FuzzDurations: what both parsers of durations take, that of flags and filters and that of
// settings, is the same to both.
func FuzzDurations(f *testing.F) {
	for _, s := range []string{"90s", "7d", "2w", "1w1d", "1d12h", "1.5h", "0", "1h1d", "00d", "36600d", "-1d", "+1h", ".5h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, aerr := ledger.ParseDuration(s)
		b, berr := settings.ParseDuration(s)
		if aerr == nil && berr == nil && a != b {
			t.Errorf("%q is %v here and %v there", s, a, b)
		}
	})
}
