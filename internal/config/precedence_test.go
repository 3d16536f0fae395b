package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// someValue draws a value of a key, as text.
func someValue(t *rapid.T, k key, label string) string {
	n := rapid.IntRange(1, 1000).Draw(t, label)
	switch typ := k.scalar(); {
	case k.oneOf != nil:
		return k.oneOf[n%len(k.oneOf)]
	case typ == durationType:
		return FormatDuration(time.Duration(5+n) * time.Second)
	case typ == rateType:
		return scheduler.Rate{Count: n, Per: time.Minute}.String()
	case typ == sizeType:
		return (Size(8+n) << 20).String()
	case k.name == "open_files":
		return strconv.Itoa(leastFiles + n)
	case typ == shardType:
		return fmt.Sprintf("0/%d", n)
	case typ.Kind() == reflect.Bool:
		return strconv.FormatBool(n%2 == 0)
	case k.name == "priority": // -2 … 2
		return strconv.Itoa(n%5 - 2)
	case typ.Kind() == reflect.Int:
		return strconv.Itoa(n)
	case k.name == "db":
		return fmt.Sprintf("postgres://host%d/work", n)
	case k.name == "listen":
		return fmt.Sprintf("127.0.0.1:%d", n)
	case k.name == "every":
		return fmt.Sprintf("%dm", n)
	case k.name == "zone":
		return []string{"UTC", "Europe/Berlin", "Asia/Tokyo"}[n%3]
	case k.isPath:
		return fmt.Sprintf("/srv/%d", n)
	}
	return fmt.Sprintf("name-%d", n)
}

// inFile returns a value in the form of TOML.
func inFile(k key, text string) string {
	if typ := k.scalar(); typ != durationType && (typ.Kind() == reflect.Bool || typ.Kind() == reflect.Int) {
		return text
	}
	return strconv.Quote(text)
}

// TestPrecedence: a flag overrides a variable, and a variable overrides the file, for every key with one value. Origin
// names the one that counts.
func TestPrecedence(t *testing.T) {
	dir := t.TempDir()
	tables := []struct {
		prefix string
		of     reflect.Type
	}{{"", reflect.TypeFor[Config]()}, {"api", reflect.TypeFor[API]()}, {"ui", reflect.TypeFor[UI]()}}
	rapid.Check(t, func(t *rapid.T) {
		table := rapid.SampledFrom(tables).Draw(t, "table")
		text, environ, flags := "", []string{}, map[string]string{}
		if table.prefix != "" {
			text = "[" + table.prefix + "]\n"
		}
		type setting struct{ value, origin string }
		wanted := map[string]setting{}
		line := strings.Count(text, "\n")
		path := filepath.Join(dir, "ledgerd.toml")
		for _, k := range keys(table.of) {
			if k.scalar() == nil || k.name == "db_file" {
				continue
			}
			at := joinPath(table.prefix, k.name)
			var w setting
			if rapid.Bool().Draw(t, "in file") {
				w.value = someValue(t, k, "file")
				text += fmt.Sprintf("%s = %s\n", k.name, inFile(k, w.value))
				line++
				w.origin = fmt.Sprintf("%s:%d", path, line)
			}
			if rapid.Bool().Draw(t, "in environment") {
				w.value = someValue(t, k, "environment")
				w.origin = EnvName(at)
				environ = append(environ, w.origin+"="+w.value)
			}
			if table.prefix == "" && rapid.Bool().Draw(t, "flag") {
				w.value = someValue(t, k, "flag")
				w.origin = "--" + strings.ReplaceAll(k.name, "_", "-")
				flags[k.name] = w.value
			}
			if w.origin != "" {
				wanted[at] = w
			}
		}
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		// Keys that only conflict with each other are refused, but their values are read.
		c, _ := Load(Options{Path: path, Environ: environ, Flags: flags})
		got := map[string]setting{}
		for _, s := range c.Settings(World{}) {
			if s.Origin != (Origin{}) {
				got[s.Key] = setting{fmt.Sprint(s.Value), s.Origin.String()}
			}
		}
		if !reflect.DeepEqual(got, wanted) {
			t.Fatalf("%s\n%v\n%v\n got %v\nwant %v", text, environ, flags, got, wanted)
		}
	})
}

// TestDatabaseFile: a value of db overrides one of db_file with lower precedence, and the reverse.
func TestDatabaseFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "url")
	must.OK(t, os.WriteFile(file, []byte("postgres://in-file/x\n"), 0o600))
	inFile := write(t, `db_file = "`+file+`"`)
	relative := write(t, "db_file = \"users.url\"\n[[source]]\nname = \"a\"\ntype = \"query\"\nkind = \"mail\"\n"+
		"query = \"SELECT 1\"\nquery_db_file = \"users.url\"")
	folder := filepath.Dir(relative)
	must.OK(t, os.WriteFile(filepath.Join(folder, "users.url"), []byte("sqlite:users.db\n"), 0o600))
	plain := write(t, `db = "postgres://plain/x"`)
	for name, test := range map[string]struct {
		path, want string
		environ    []string
		flags      map[string]string
	}{
		"file":                  {path: inFile, want: "postgres://in-file/x"},
		"path in a file":        {path: relative, want: "sqlite:" + folder + "/users.db"},
		"variable over db":      {path: plain, want: "postgres://in-file/x", environ: []string{"LEDGERD_DB_FILE=" + file}},
		"variable over db_file": {path: inFile, want: "postgres://env/x", environ: []string{"LEDGERD_DB=postgres://env/x"}},
		"flag over db_file": {path: inFile, want: "postgres://flag/x",
			flags: map[string]string{"db": "postgres://flag/x"}},
		"flag over both": {path: inFile, want: "postgres://flag/x", environ: []string{"LEDGERD_DB=postgres://env/x"},
			flags: map[string]string{"db": "postgres://flag/x"}},
		"of variables the value": {want: "postgres://env/x", environ: []string{"LEDGERD_DB=postgres://env/x",
			"LEDGERD_DB_FILE=/none"}},
		"an empty one is nothing": {path: plain, want: "postgres://plain/x", environ: []string{"LEDGERD_DB="}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Load(Options{Path: test.path, Environ: test.environ, Flags: test.flags})
			if err != nil || c.DB != test.want || len(c.Sources) > 0 && c.Sources[0].QueryDB != test.want {
				t.Errorf("%s, %+v, %v", c.DB, c.Sources, err)
			}
		})
	}
}

// TestPolicy: the configuration of a kind overrides the ledger's policy. Values that it does not set stay.
func TestPolicy(t *testing.T) {
	c, err := Load(Options{Path: write(t, "[kinds.a]\nmax_failures = 0\nkeep = \"7d\"\npaused = false\non_lost = "+
		"\"doubt\"\nplugin = \"a\"")})
	must.OK(t, err)
	have := ledger.Kind{Name: "a", Plugin: "b", MaxFailures: 9, MaxLost: 7, Paused: true, Timeout: time.Hour}
	c.Kinds["a"].Policy(&have)
	want := ledger.Kind{Name: "a", MaxLost: 7, Timeout: time.Hour, Keep: 168 * time.Hour, OnLost: ledger.OnLostDoubt}
	if !reflect.DeepEqual(have, want) {
		t.Errorf(" got %+v\nwant %+v", have, want)
	}
}

// TestVariableOfATable: the keys of [api] and [ui] have variables, as the reference names them, and a change of them is
// reported at a reload.
func TestVariableOfATable(t *testing.T) {
	for variable, key := range map[string]string{"LEDGERD_API_LISTEN=127.0.0.1:1": "api.listen",
		"LEDGERD_UI_SERVE=true": "ui.serve"} {
		before, err := Load(Options{})
		must.OK(t, err)
		after, err := Load(Options{Environ: []string{variable}})
		if after == nil || len(after.Warnings) > 0 {
			t.Fatal(variable, err)
		}
		if changes := Diff(before, after); len(changes) != 1 || changes[0].Key != key {
			t.Errorf("%s: %+v", variable, changes)
		}
	}
}

// TestListsInVariables: spaces around the parts of a list do not count.
func TestListsInVariables(t *testing.T) {
	c := fine(Load(Options{Environ: []string{"LEDGERD_API_HIDE=email, phone", "LEDGERD_API_HOSTS= a.example ,b.example"}}))
	if want := []string{"email", "phone"}; !slices.Equal(c.API.Hide, want) {
		t.Errorf("%q, want %q", c.API.Hide, want)
	}
	if want := []string{"a.example", "b.example"}; !slices.Equal(c.API.Hosts, want) {
		t.Errorf("%q, want %q", c.API.Hosts, want)
	}
}
