package dburl

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

func TestParseAddress(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(home)
	cwd, err := os.Getwd()
	must.OK(t, err)
	for db, want := range map[string]struct{ shown, schema string }{
		"sqlite:a.db":          {"sqlite:" + filepath.Join(cwd, "a.db"), ""},
		"sqlite:///var/x/../a": {"sqlite:/var/a", ""},
		"sqlite:~/b.db":        {"sqlite:" + filepath.Join(home, "b.db"), ""},
		"postgres://ann:secret@db1:5432/work?search_path=s1,public": {
			"postgres://ann:***@db1:5432/work?search_path=s1,public", "s1"},
		"postgresql:///work?host=/run/pg":      {"postgresql:///work?host=/run/pg", ""},
		"postgres://h/d?search_path= app ,x":   {"postgres://h/d?search_path= app ,x", "app"},
		`postgres://h/d?search_path="App" ,x`:  {`postgres://h/d?search_path="App" ,x`, "App"},
		`postgres://h/d?search_path="a,""b"""`: {`postgres://h/d?search_path="a,""b"""`, `a,"b"`},
	} {
		at, err := Parse(db, "--db")
		must.OK(t, err)
		pg, _ := at.(postgresSchema)
		if at.String() != want.shown || pg.schema != want.schema {
			t.Errorf("%s: %s, schema %q", db, at, pg.schema)
		}
	}
	for _, db := range []string{"ledger.db", "sqlite:", "mysql://h/d", "/var/ledger.db", "postgres://h:p%zz@x/",
		"postgres://h/d?search_path=$user,public", `postgres://h/d?search_path="$user"`, `postgres://h/d?search_path="a`,
		`postgres://h/d?search_path="a"b`, "postgres://h/d?search_path=a b",
		"postgres://h/d?search_path=App"} {
		at, err := Parse(db, "--db")
		if _, ok := errors.AsType[*Error](err); !ok {
			t.Errorf("%s: %s, %v", db, at, err)
		}
	}
}

// TestRelative: the path of an SQLite file in a config file is relative to that file; all else stays.
func TestRelative(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for db, want := range map[string]string{
		"sqlite:a.db": "sqlite:/etc/ledgerd/a.db", "sqlite://b/a.db": "sqlite:/etc/ledgerd/b/a.db",
		"sqlite:/var/a.db": "sqlite:/var/a.db", "sqlite:~/a.db": "sqlite:" + filepath.Join(home, "a.db"),
		"sqlite:": "sqlite:", "a.db": "a.db", "postgres://ann@db1/work": "postgres://ann@db1/work",
	} {
		if have := Relative(db, "/etc/ledgerd"); have != want {
			t.Errorf("%s: %s, not %s", db, have, want)
		}
	}
}

// FuzzAddress: --db names one place, however often it is written down and read again, or is a
// mistake with a correction; and a password in it is seen nowhere.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"sqlite:a.db", "sqlite:///x/../y", "sqlite:~/a", "sqlite:",
		"postgres://u@h/d?search_path=s,t", "postgresql:///d?host=/run", "postgres://[::1]:5/x", "mysql://u:secret99@h",
		"postgres:// u:secret99@h", "postgres://u:sec:ret99@h:x/d", "POSTGRES://u:secret99@h/d", "user:secret99@h",
		"sqlite:?mode=memory", "postgres://u:%zz@h", "host=h password=secret99"} {
		f.Add(s, "ann", "secret99")
	}
	f.Fuzz(func(t *testing.T, db, user, password string) {
		at, err := Parse(db, "--db")
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%q: %v is no *Error", db, err)
			}
		} else {
			full := ""
			switch at := at.(type) {
			case sqliteFile:
				if full = at.String(); !filepath.IsAbs(at.path) {
					t.Errorf("%q: the path %q is not absolute", db, at.path)
				}
			case postgresSchema:
				full = at.url
			}
			if again, err := Parse(full, "--db"); err != nil || again != at {
				t.Errorf("%q is %+v, and that %+v, %v", db, at, again, err)
			}
		}
		plain := func(s string) bool { return s != "" && s == url.QueryEscape(s) && !strings.ContainsAny(s, "%+") }
		if !plain(user) || !plain(password) || len(password) < 5 ||
			strings.Contains("postgres://"+user+"@host.example:5432/work?search_path=s--db not a Postgres URL special "+
				"characters of a password are written as %XX", password) {
			return
		}
		for _, scheme := range []string{"postgres", "postgresql", "mysql", "POSTGRES", "x"} {
			for _, rest := range []string{"@host.example:5432/work?search_path=s", "@host.example:x/work", "@host.example/%zz",
				"@"} {
				text := scheme + "://" + user + ":" + password + rest
				shown := ""
				if at, err := Parse(text, "--db"); err != nil {
					shown = err.Error()
				} else {
					shown = at.String() + at.Brief()
				}
				if strings.Contains(shown, password) {
					t.Errorf("%q is shown as %q", text, shown)
				}
			}
		}
	})
}
