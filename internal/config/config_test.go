package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// TestKeys: every key has help and a range where it needs one, and its default and range can be parsed.
func TestKeys(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[Kind](), reflect.TypeFor[Source](),
		reflect.TypeFor[Plugin](), reflect.TypeFor[API](), reflect.TypeFor[Token](), reflect.TypeFor[UI]()} {
		withDefaults(typ) // panics on a bad default
		all := keys(typ)
		for _, k := range all {
			if k.doc == "" && k.tableType() == nil {
				t.Errorf("%s.%s has no help", typ.Name(), k.name)
			}
			if k.scalar() == durationType && k.most == "" || k.scalar() != nil && k.scalar().Kind() == reflect.Int &&
				k.most == "" {
				t.Errorf("%s.%s has no range", typ.Name(), k.name)
			}
			if k.most != "" && k.scalar() == durationType {
				for _, text := range []string{k.least, k.most} {
					if err := k.parse(reflect.New(k.typ).Elem(), text, ""); err != nil {
						t.Errorf("%s.%s: %v", typ.Name(), k.name, err)
					}
				}
			}
		}
	}
}

// TestExample: the file that config init writes is correct, also with all comments removed from its keys. Each of its
// sources does what its comment promises.
func TestExample(t *testing.T) {
	all := regexp.MustCompile(`(?m)^#(\[|[a-z0-9_]+ = )`).ReplaceAllString(Example, "$1")
	all = regexp.MustCompile(`(?m)^db(_file)? = .*\n`).ReplaceAllString(all, "") // one of three
	w := world(t)
	known := w.Describe
	w.Describe = func(name string) (*About, error) {
		if name == "filecsv" || name == "thumbs" {
			return &About{Input: "file", Payload: schema(t, `"path":{"type":"string"},"delimiter":{"type":"string"}`),
				Config: schema(t, "")}, nil
		}
		return known(name)
	}
	for name, text := range map[string]string{"as it is": Example, "commented in": all} {
		c, err := Load(Options{Path: write(t, text)})
		if err = c.Check(w, err); err != nil || len(c.Warnings) > 0 {
			t.Errorf("%s: %v %v", name, err, c.Warnings)
		}
		if name == "commented in" && (len(c.Sources) != 2 || c.Sources[0].MoveTo == "" ||
			c.Kind(c.Sources[1].Kind).Every == "" || c.Plugins["thumbs"].SHA256 == nil) {
			t.Errorf("commented in:\n%s", all)
		}
		if name == "as it is" && len(Diff(c, fine(Load(Options{Path: write(t, "")})))) > 0 {
			t.Error("it sets something")
		}
	}
}

// TestWorkedOnce: a warning comes only for a source of URLs that a program works once for ever, unless the config asks
// for that.
func TestWorkedOnce(t *testing.T) {
	list := func(kind string) string {
		return "[[source]]\nname = \"s\"\ntype = \"list\"\npath = \"l\"\nkind = \"" + kind + "\"\n"
	}
	query := strings.Replace(strings.Replace(list("urlcheck"), "list", "query", 1), `path = "l"`, `query = "SELECT 1"`, 1)
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"list of URLs":        {list("urlcheck"), true},
		"with a schedule":     {list("urlcheck") + "schedule = \"30s\"\n", true},
		"query of URLs":       {query, true},
		"by another name":     {"[kinds.nightly]\nplugin = \"urlcheck\"\n" + list("nightly"), true},
		"recurring":           {"[kinds.urlcheck]\nevery = \"day\"\n" + list("urlcheck"), false},
		"once is meant":       {"[kinds.urlcheck]\nevery = \"\"\n" + list("urlcheck"), false},
		"lines of text":       {"[kinds.mail]\nwith = { host = \"h\" }\n" + list("mail"), false},
		"people work it":      {"[kinds.article]\ninput = \"url\"\n" + list("article"), false},
		"a folder that comes": {strings.Replace(list("article"), "list", "folder", 1), false},
	} {
		c, err := loadAll(world(t), write(t, test.text), test.text)
		if err != nil || (len(c.Warnings) == 1) != test.want || len(c.Warnings) > 1 {
			t.Errorf("%s: %v %v", name, err, c.Warnings)
		}
	}
}

// TestOthersVariables: variables that ledgerd gives to the commands it starts are no mistakes.
func TestOthersVariables(t *testing.T) {
	for name, want := range map[string]int{"KIND": 0, "ITEM": 0, "SCOPE": 0, "FENCE": 0, "LOG_LEVELL": 1} {
		c, err := Load(Options{Environ: []string{"LEDGERD_" + name + "=x"}})
		if err != nil || len(c.Warnings) != want {
			t.Errorf("%s: %v %v", name, err, c.Warnings)
		}
	}
}

// fine returns a config that must load.
func fine(c *Config, err error) *Config {
	if err != nil {
		panic(err)
	}
	return c
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	user := filepath.Join(dir, "ledgerd", "ledgerd.toml")
	env := map[string]string{"HOME": dir}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	check := func(named, want string) {
		t.Helper()
		if got := Find(named, lookup); got != want && !(want == "" && got == SystemFile) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check("", "")
	env["XDG_CONFIG_HOME"] = dir
	check("", "")
	must.OK(t, os.Mkdir(filepath.Dir(user), 0o700))
	must.OK(t, os.WriteFile(user, nil, 0o600))
	check("", user)
	env["LEDGERD_CONFIG"] = "/other"
	check("", "/other")
	check("/named", "/named")
}

// TestSecrets: a secret is read from each place where it may be, and is never shown. A file that holds one and is
// readable by all users gets a warning.
func TestSecrets(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "password")
	must.OK(t, os.WriteFile(secret, []byte("hunter22\n"), 0o600))
	mail, _ := world(t).Describe("mail")
	for name, test := range map[string]struct {
		text   string
		shown  string
		warned bool
	}{
		"in the file":         {text: `smtp.password = "hunter22"`, shown: Hidden, warned: true},
		"file:":               {text: `smtp.password = "file:` + secret + `"`, shown: "file:" + secret},
		"file: in the folder": {text: `smtp.password = "file:password"`, shown: "file:password"},
		"password_file":       {text: `smtp.password_file = "` + secret + `"`, shown: secret},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "[kinds.mail.with]\nhost = \"h\"\n"+test.text)
			must.OK(t, os.WriteFile(filepath.Join(filepath.Dir(path), "password"), []byte("hunter22\n"), 0o600))
			must.OK(t, os.Chmod(path, 0o644))
			c, err := Load(Options{Path: path})
			if err == nil {
				err = c.Check(world(t), nil)
			}
			must.OK(t, err)
			config, err := c.With("mail", mail.Config)
			if want := `{"host":"h","smtp":{"password":"hunter22"}}`; err != nil || string(config) != want {
				t.Errorf("%s, %v", config, err)
			}
			shown := ""
			for _, s := range c.Settings(world(t)) {
				if strings.Contains(s.Key, "smtp") {
					shown, _ = s.Value.(string)
				}
			}
			if shown != test.shown || (len(c.Warnings) > 0) != test.warned {
				t.Errorf("shown as %q, warnings %v", shown, c.Warnings)
			}
			for _, w := range c.Warnings {
				if strings.Contains(w.String(), "hunter") {
					t.Error(w)
				}
			}
		})
	}
}

// TestSourcePayload: the settings of a source override those of its kind, field by field.
func TestSourcePayload(t *testing.T) {
	c := fine(Load(Options{Path: write(t, `
[kinds.urlcheck.set]
method = "HEAD"
accept = [200]
[[source]]
name = "a"
type = "list"
kind = "urlcheck"
path = "l"
set = { accept = [404] }
[[source]]
name = "b"
type = "list"
kind = "urlcheck"
path = "l"
[kinds.article]
set = { auth = { user = "ann", in = { a = 1, b = 2 } }, tags = "none" }
[[source]]
name = "c"
type = "list"
kind = "article"
path = "l"
set = { auth.in.b = 3, tags.x = 1 }
`)}))
	about, _ := world(t).Describe("urlcheck")
	any := schema(t, `"auth":{"type":"object"},"tags":{}`)
	for i, want := range []string{`{"accept":[404],"method":"HEAD"}`, `{"accept":[200],"method":"HEAD"}`,
		`{"auth":{"in":{"a":1,"b":3},"user":"ann"},"tags":{"x":1}}`} {
		got, err := c.SourcePayload(c.Sources[i], map[bool]*settings.Schema{true: any, false: about.Payload}[i == 2])
		if err != nil || string(got) != want {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// TestNext: intervals count from 1970. All other schedules follow recurrence.Rule.
func TestNext(t *testing.T) {
	at := time.Date(2026, 3, 28, 12, 0, 7, 0, time.UTC)
	for _, test := range []struct{ schedule, zone, want string }{
		{"5s", "", "2026-03-28T12:00:10Z"},
		{"5s", "Europe/Berlin", "2026-03-28T12:00:10Z"},
		{"1m", "", "2026-03-28T12:01:00Z"},
		{"hour", "", "2026-03-28T13:00:00Z"},
		{"day", "Europe/Berlin", "2026-03-28T23:00:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z"}, // skipped by the clock change
	} {
		_, err := Load(Options{Path: write(t,
			fmt.Sprintf("[[source]]\nname = \"a\"\ntype = \"folder\"\nkind = \"b\"\npath = \"/c\"\nschedule = %q\nzone = %q\n",
				test.schedule, test.zone))})
		if err != nil {
			t.Errorf("%s in zone %q is refused: %v", test.schedule, test.zone, err)
		}
		s := &Source{Schedule: test.schedule, Zone: test.zone}
		if got := s.Next(at).Format(time.RFC3339); got != test.want {
			t.Errorf("%s: %s, want %s", test.schedule, got, test.want)
		}
	}
}

func TestDiff(t *testing.T) {
	before := fine(Load(Options{Path: write(t, `
db = "postgres://me:hunter2@h/db"
lease = "1m"
log_level = "info"
[kinds.gone]
[kinds.urlcheck]
max_failures = 3
concurrency = 4
with = { token = "hunter2" }
set = { accept = [200] }
[[source]]
name = "inbox"
type = "folder"
kind = "filecsv"
path = "/in"
[[source]]
name = "old"
type = "list"
kind = "urlcheck"
path = "/l"
[plugins.a]
command = ["/a"]
`)}))
	after := fine(Load(Options{Path: write(t, `
db = "postgres://me:hunter3@h/db"
lease = "2m"
log_level = "debug"
[kinds.urlcheck]
max_failures = 4
keep = "7d"
concurrency = 8
with = { token = "hunter3" }
set = { accept = [404] }
[kinds.new]
[[source]]
name = "new"
type = "list"
kind = "urlcheck"
path = "/l"
[[source]]
name = "inbox"
type = "folder"
kind = "filecsv"
path = "/in2"
exclude = ["x"]
[plugins.a]
command = ["/b"]
`)}))
	var got []string
	for _, c := range Diff(before, after) {
		got = append(got, c.Key+map[bool]string{false: " (needs a restart)"}[c.Live])
	}
	want := []string{
		"db (needs a restart)",
		"kinds.gone",
		"kinds.new",
		"kinds.urlcheck.concurrency (needs a restart)",
		"kinds.urlcheck.keep",
		"kinds.urlcheck.max_failures",
		"kinds.urlcheck.set",
		"kinds.urlcheck.with",
		"lease (needs a restart)",
		"log_level",
		"plugins.a.command",
		"source.inbox.exclude",
		"source.inbox.path",
		"source.new",
		"source.old",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if same := Diff(after, after); len(same) > 0 {
		t.Error(same)
	}
	after.Retain(before)
	for _, c := range Diff(before, after) {
		if !c.Live {
			t.Errorf("%s has not the value of before", c.Key)
		}
	}
	if len(Diff(before, after)) != len(want)-3 || after.Kinds["urlcheck"].Concurrency != 4 || after.Lease != time.Minute {
		t.Error(Diff(before, after))
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"512MiB": 512 << 20, "2GB": 2e9, "1048576": 1 << 20, "0": 0,
		"1.5 GiB": 3 << 29, "512mib": 512 << 20} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if again, err := ParseSize(got.String()); err != nil || again != got {
			t.Errorf("%s is written %s: %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "much", "-1", "1EiB5", "2000000TB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// TestDefaultLease: the tag of the key lease repeats the default of the ledger.
func TestDefaultLease(t *testing.T) {
	c, _ := Load(Options{})
	if c.Lease != bounds.DefaultTTL {
		t.Errorf("%s, the ledger's default is %s", c.Lease, bounds.DefaultTTL)
	}
}

// TestSource: a plugin's source is named for this machine, and a path is relative to the config.
func TestSource(t *testing.T) {
	for source, want := range map[string]string{
		"https://example.org/thumbs-{os}-{arch}?v=1": "https://example.org/thumbs-" + runtime.GOOS + "-" + runtime.GOARCH + "?v=1",
		"dist/{os}/thumbs":                           "dist/" + runtime.GOOS + "/thumbs",
	} {
		file := write(t, fmt.Sprintf("[plugins.thumbs]\nsource = %q\nsha256 = [%q]\n", source, strings.Repeat("0f", 32)))
		c, err := Load(Options{Path: file})
		must.OK(t, err)
		if !IsURL(source) {
			want = filepath.Join(filepath.Dir(file), want)
		}
		if got := c.Plugins["thumbs"].From(); got != want {
			t.Errorf("source %s is %s, want %s", source, got, want)
		}
	}
}
