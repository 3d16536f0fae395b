package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
)

// tree makes files in a new working directory and returns it. All files are old enough to be taken.
func tree(t *testing.T, files ...string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
	t.Chdir(root)
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		must.OK(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.OK(t, os.WriteFile(name, []byte(content), 0o644))
		old := time.Now().Add(-time.Hour)
		must.OK(t, os.Chtimes(name, old, old))
	}
	return root
}

// read returns what a source yields as text: "+ key" for an item, "- input: reason" for a file that is not taken, "!
// file:line: reason" for a bad line.
func read(t *testing.T, s Source) ([]string, error) {
	t.Helper()
	s.Template.Kind = "k"
	cwd, _ := os.Getwd()
	var got []string
	for f, err := range s.Items(context.Background()) {
		if nt, ok := errors.AsType[*NotTaken](err); ok {
			got = append(got, "- "+nt.Error())
		} else if bad, ok := errors.AsType[*BadLine](err); ok {
			got = append(got, "! "+bad.Error())
		} else if err != nil {
			return got, err
		} else {
			got = append(got, "+ "+strings.TrimPrefix(f.Item.Key, cwd+"/"))
		}
	}
	return got, nil
}

func TestFolders(t *testing.T) {
	csv := []string{"*.csv", "*.csv.gz"}
	for _, test := range []struct {
		name  string
		files []string
		match []string
		rules []Rule
		args  []string
		want  []string
	}{
		{"files are sorted, others are named", []string{"in/b.csv", "in/a.CSV", "in/c.xlsx", "in/sub/d.csv.gz"}, csv, nil,
			[]string{"in"},
			[]string{"+ in/a.CSV", "+ in/b.csv", "- in/c.xlsx: no match", "+ in/sub/d.csv.gz"}},
		{"hidden and unfinished", []string{"in/.git/x.csv", "in/.a.csv", "in/a.csv.part", "in/b.tmp", "in/c.CRDOWNLOAD",
			"in/~$d.csv", "in/e.csv"}, nil, nil, []string{"in"},
			[]string{"- in/.a.csv: hidden", "- in/.git: hidden", "- in/a.csv.part: unfinished (.part)",
				"- in/b.tmp: unfinished (.tmp)",
				"- in/c.CRDOWNLOAD: unfinished (.crdownload)", "+ in/e.csv", "- in/~$d.csv: lock file of an editor"}},
		{"a file that is named is taken anyway", []string{".a.part"}, csv, []Rule{{true, "*"}}, []string{".a.part"},
			[]string{"+ .a.part"}},
		{"include restricts to what it matches", []string{"in/a.csv", "in/b.dat", "in/c.xls"}, csv, []Rule{{false, "*.dat"}},
			[]string{"in"},
			[]string{"- in/a.csv: no match", "+ in/b.dat", "- in/c.xls: no match"}},
		{"include, and files that the plugin takes", []string{"in/a1.csv", "in/b.csv"}, csv, []Rule{{false, "a*"}},
			[]string{"in"},
			[]string{"+ in/a1.csv", "- in/b.csv: no match"}},
		{"include alone, where the plugin takes everything", []string{"in/a.csv", "in/b.dat"}, nil, []Rule{{false, "*.dat"}},
			[]string{"in"},
			[]string{"- in/a.csv: no match", "+ in/b.dat"}},
		{"the last match wins", []string{"in/a1.csv", "in/a2.csv", "in/b.csv"}, csv, []Rule{{true, "*"}, {false, "a*"},
			{true, "a2*"}}, []string{"in"},
			[]string{"+ in/a1.csv", "- in/a2.csv: excluded", "- in/b.csv: excluded"}},
		{"an excluded folder is not entered", []string{"in/old/a.csv", "in/new/old/b.csv", "in/new/c.csv"}, csv,
			[]Rule{{true, "old"}}, []string{"in"},
			[]string{"+ in/new/c.csv", "- in/new/old: excluded", "- in/old: excluded"}},
		{"but what is included after it is found", []string{"in/old/a.csv", "in/old/b.csv"}, csv,
			[]Rule{{true, "old"}, {false, "old/b.csv"}}, []string{"in"},
			[]string{"- in/old/a.csv: excluded", "+ in/old/b.csv"}},
		{"a pattern with a slash is about the path", []string{"in/x/a.csv", "in/y/x/a.csv"}, csv, []Rule{{true, "x/*.csv"}},
			[]string{"in"},
			[]string{"- in/x/a.csv: excluded", "+ in/y/x/a.csv"}},
		{"a glob takes any files", []string{"in/a.dat", "in/s/b.dat", "in/.h.dat", "in/c.dat.part"}, csv, nil,
			[]string{"in/**/*.dat*"},
			[]string{"+ in/a.dat", "- in/c.dat.part: unfinished (.part)", "+ in/s/b.dat"}},
		{"a glob with rules", []string{"in/a.dat", "in/b.dat"}, csv, []Rule{{true, "b*"}}, []string{"in/*"},
			[]string{"+ in/a.dat", "- in/b.dat: excluded"}},
		{"a name with brackets is a name", []string{"a[1].csv"}, csv, nil, []string{"a[1].csv"}, []string{"+ a[1].csv"}},
		{"a name that is not UTF-8", []string{"in/\xff.csv", "in/a.csv"}, csv, nil, []string{"in"},
			[]string{"+ in/a.csv", "- in/\xff.csv: key: not valid UTF-8"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if strings.Contains(strings.Join(test.files, ""), "\xff") && runtime.GOOS == "darwin" {
				test.files, test.want = test.files[1:], test.want[:1] // its file systems know UTF-8 only
			}
			tree(t, test.files...)
			s := Source{Input: ledger.Input{Type: File, Field: "path", Match: test.match}, Rules: test.rules, Args: test.args}
			must.OK(t, s.Check())
			got, err := read(t, s)
			must.OK(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Patterns that match nothing are refused if there are no other inputs, and else named.
func TestGlobOfNothing(t *testing.T) {
	tree(t, "a.csv=1", "dir/b.csv=2")
	for _, args := range [][]string{{"*.nothing"}, {"*.nothing", "dir/*.no"}, {"di*"}} {
		err := (&Source{Input: ledger.Input{Type: File}, Args: args}).Check()
		if ae, ok := errors.AsType[*ArgError](err); !ok || ae.Error() != strings.Join(args, " ")+": matches nothing" {
			t.Errorf("%q: %v", args, err)
		}
	}
	for _, args := range [][]string{{"*.nothing", "a.csv"}, {"*.nothing", "-"}, {"dir/*"}} {
		if err := (&Source{Input: ledger.Input{Type: File}, Args: args}).Check(); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	got, err := read(t, Source{Input: ledger.Input{Type: File}, Args: []string{"*.nothing", "a.csv", "-"},
		Stdin: strings.NewReader("no*\n")})
	if diff := cmp.Diff([]string{"- *.nothing: matches nothing", "+ a.csv", "! -:1: no*: matches nothing"},
		got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestFileItem(t *testing.T) {
	root := tree(t, "a&b.csv=hello", "links.txt=# comment\n\n a&b.csv \nmissing.csv\n")
	s := Source{Template: ledger.NewItem{Kind: "filecsv", Scope: "s"}, Input: ledger.Input{Type: File, Field: "path"},
		Payload: json.RawMessage(`{"required":["email"]}`), Args: []string{"./x/../a&b.csv"}, From: "links.txt"}
	info, err := os.Stat("a&b.csv")
	must.OK(t, err)
	must.OK(t, os.Mkdir("x", 0o755))
	var got []ledger.NewItem
	var bad []string
	for f, err := range s.Items(context.Background()) {
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		got = append(got, f.Item)
	}
	item := ledger.NewItem{Kind: "filecsv", Scope: "s", Key: root + "/a&b.csv", Fingerprint: fmt.Sprintf("5-%d",
		info.ModTime().UnixNano()),
		Payload: []byte(`{"path":"` + root + `/a&b.csv","required":["email"]}`)}
	listed := item
	listed.Source = "links.txt:3"
	if diff := cmp.Diff([]ledger.NewItem{item, listed}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"links.txt:4: missing.csv: does not exist"}, bad); diff != "" {
		t.Error(diff)
	}

	s.Checksum, s.From = true, ""
	for f := range s.Items(context.Background()) {
		if want := "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"; f.Item.Fingerprint != want {
			t.Errorf("fingerprint %s, want %s", f.Item.Fingerprint, want)
		}
	}
}

// Facts about a file are in the fields that the plugin named for them.
func TestFileFacts(t *testing.T) {
	tree(t, "in/a.csv=1", "row.csv=path,modified\nin/a.csv,2020-01-01\n")
	at := time.Date(2026, 3, 1, 2, 3, 4, 5000, time.FixedZone("", 3600))
	must.OK(t, os.Chtimes("in/a.csv", at, at))
	me, err := user.Current()
	must.OK(t, err)
	all := ledger.Input{Type: File, Field: "path", Modified: "modified", Owner: "owner"}
	const time = "2026-03-01T01:03:04.000005Z"
	for _, test := range []struct {
		name   string
		source Source
		want   map[string]string // besides the path
	}{
		{"named", Source{Args: []string{"in/a.csv"}, Input: all}, map[string]string{"modified": time, "owner": me.Username}},
		{"in a folder", Source{Args: []string{"in"}, Input: all}, map[string]string{"modified": time, "owner": me.Username}},
		{"the content decides whether it is new", Source{Args: []string{"in"}, Input: all, Checksum: true},
			map[string]string{"owner": me.Username}},
		{"not asked for", Source{Args: []string{"in"}, Input: ledger.Input{Type: File, Field: "path"}}, map[string]string{}},
		{"a row knows better", Source{CSV: "row.csv", Input: all}, map[string]string{"modified": "2020-01-01",
			"owner": me.Username}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.source.Template.Kind = "k"
			for f, err := range test.source.Items(t.Context()) {
				must.OK(t, err)
				test.want["path"] = f.Item.Key
				var got map[string]string
				must.OK(t, json.Unmarshal(f.Item.Payload, &got))
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("payload (-want +got):\n%s", diff)
				}
			}
		})
	}
	s := Source{Args: []string{"in"}, Input: all, Payload: json.RawMessage(`{"owner":"me"}`)}
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "is the field that INPUT fills") {
		t.Errorf("an owner that was set: %v", err)
	}
}

func TestLists(t *testing.T) {
	tree(t, "links.txt=\ufeffhttps://a.example/1\r\n# no\r\nnot a link\r\nhttp://B.example:80\n",
		"utf16.txt=\xff\xfeh\x00i\x00\n\x00")
	got, err := read(t, Source{Input: ledger.Input{Type: URL}, Args: []string{"links.txt"}})
	must.OK(t, err)
	want := []string{"+ https://a.example/1", "! links.txt:3: not a link: is neither a URL nor a file that exists",
		"+ http://b.example/"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	stdin := "one\n\n  two \n" + strings.Repeat("x", 2049) + "\n" + strings.Repeat("y", maxLine+1) + "\na\x00b\nlast"
	got, err = read(t, Source{Args: []string{"#text", "-"}, From: "utf16.txt", Stdin: strings.NewReader(stdin)})
	must.OK(t, err)
	want = []string{"+ #text", "+ one", "+ two",
		"! -:4: " + strings.Repeat("x", 120) + "…: key: 2,049 bytes, at most 2,048",
		fmt.Sprintf("! -:5: longer than %d bytes", maxLine), "! -:6: a\x00b: key: contains a NUL byte", "+ last", "+ hi"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// mail stands for the schema of a payload: to is text of at least three characters, age a number, vip a bool.
type mail struct{}

func (mail) Parse(object []byte, assignments []string) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if len(object) > 0 {
		if err := json.Unmarshal(object, &fields); err != nil {
			return nil, err
		}
	}
	for _, a := range assignments {
		name, text, _ := strings.Cut(a, "=")
		switch name {
		case "to":
			fields[name] = ledger.JSON(text)
		case "age":
			if !json.Valid([]byte(text)) {
				return nil, fmt.Errorf("age: not %q", text)
			}
			fields[name] = json.RawMessage(text)
		case "vip", "to:", "age:", "vip:":
			fields[strings.TrimSuffix(name, ":")] = json.RawMessage(text)
		default:
			return nil, fmt.Errorf("no field %s", name)
		}
	}
	return ledger.JSON(fields), nil
}

func (mail) Validate(payload []byte) error {
	var p struct{ To string }
	if err := json.Unmarshal(payload, &p); err != nil || len(p.To) < 3 {
		return fmt.Errorf("to: too short: %q", p.To)
	}
	return nil
}

// Two different lines of JSON never make the same item, though decoders turn every half of a surrogate pair into
// U+FFFD.
func TestHalfLetters(t *testing.T) {
	tree(t, "a.jsonl="+`{"key":"\ud800a"}`+"\n"+`{"key":"\udfffa"}`+"\n"+`{"key":"1","\ud800":1}`+"\n"+
		`{"key":"2","a":["\udc00"]}`+"\n"+`{"key":"\ud83d\ude00"}`+"\n")
	s := Source{Template: ledger.NewItem{Kind: "k"}, JSONL: "a.jsonl", Key: "key"}
	set := Source{Template: s.Template, Args: []string{"a"}, Input: ledger.Input{Type: Line},
		Payload: json.RawMessage(`{"a":"\ud800"}`)}
	if err := set.Check(); err == nil || !strings.Contains(err.Error(), "--set") ||
		!strings.Contains(err.Error(), "half a letter") {
		t.Errorf("--set: %v, want it refused", err)
	}
	var got []string
	for f, err := range s.Items(context.Background()) {
		if err != nil {
			got = append(got, err.Error())
		} else {
			got = append(got, f.Item.Key)
		}
	}
	want := []string{
		`a.jsonl:1: half a letter (a lone surrogate): \ud800 at byte 9`, `a.jsonl:2: half a letter (a lone surrogate): \udfff at byte 9`,
		`a.jsonl:3: half a letter (a lone surrogate): \ud800 at byte 13`, `a.jsonl:4: half a letter (a lone surrogate): \udc00 at byte 18`, "\U0001f600",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRows(t *testing.T) {
	tree(t,
		"a.csv=id;to;age\n7;ann@x;30\n8;bob@x;old\n9;c\n10;dan@x;\n11;e;1\n;f@x;\n",
		"b.jsonl="+`{"id":7,"to":"ann@x","vip":true}`+"\n\nno\n"+`{"to":"x@y"}`+"\n"+`{"id":[1]}`+"\n[1]\n"+`{"id":" "}`+"\n",
		"unknown.csv=id,phone\n1,2\n", "twice.csv=id,id\n", "unnamed.csv=id,,\n", "empty.csv=", "nokey.csv=to\nx@y\n",
		"assigned.csv=id,a=b\n", "json.csv=id,count:\n",
		"quote.csv=id\n1\n\"2\n"+strings.Repeat("3\n", maxLine))
	source := func(csv, jsonl string) Source {
		return Source{Template: ledger.NewItem{Kind: "mail"}, Input: ledger.Input{Type: Line, Field: "to"},
			Payload: json.RawMessage(`{"vip":false}`),
			CSV:     csv, JSONL: jsonl, Key: "id", Parse: mail{}.Parse, Validate: mail{}.Validate}
	}
	collect := func(s Source) (got []string, err error) {
		for f, err := range s.Items(context.Background()) {
			if bad, ok := errors.AsType[*BadLine](err); ok {
				got = append(got, bad.Error())
			} else if err != nil {
				return got, err
			} else {
				got = append(got, f.Item.Key+" "+string(f.Item.Payload)+" "+f.Item.Source)
			}
		}
		return got, nil
	}
	got, err := collect(source("a.csv", "b.jsonl"))
	must.OK(t, err)
	want := []string{
		`7 {"age":30,"to":"ann@x","vip":false} a.csv:2`,
		`a.csv:3: age: not "old"`,
		"a.csv:4: wrong number of fields",
		`10 {"to":"dan@x","vip":false} a.csv:5`,
		`a.csv:6: to: too short: "e"`,
		"a.csv:7: blank key",
		`7 {"to":"ann@x","vip":true} b.jsonl:1`,
		"b.jsonl:3: not a JSON object: invalid character 'o' in literal null (expecting 'u')",
		`b.jsonl:4: field "id" is missing`,
		`b.jsonl:5: field "id" is neither text nor a number`,
		"b.jsonl:6: not a JSON object",
		"b.jsonl:7: blank key",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for file, want := range map[string]string{
		"unknown.csv":  `unknown.csv:1: no field phone:`,
		"twice.csv":    `twice.csv:1: there are two columns "id"`,
		"unnamed.csv":  `unnamed.csv:1: column 2 has no name`,
		"assigned.csv": `assigned.csv:1: column "a=b": a name must not have = in it or : at its end`,
		"json.csv":     `json.csv:1: column "count:": a name must not have = in it or : at its end`,
		"empty.csv":    `empty.csv: is empty: a table begins with the names of its columns`,
		"nokey.csv":    `nokey.csv: has no column "id"`,
		"quote.csv":    fmt.Sprintf("quote.csv: line 3: a row is longer than %d bytes: is a quote not closed?", maxLine),
	} {
		if _, err := collect(source(file, "")); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
	}
	free := source("assigned.csv", "")
	if free.Parse = nil; free.Check() != nil {
		t.Error(free.Check())
	} else if got, err := collect(free); err == nil {
		t.Errorf("any payload: %v", got)
	}
}

// If a row has its own value for the input's field besides the key, it stays.
func TestRowInput(t *testing.T) {
	tree(t, "a.csv=url\nHTTP://A.example\nnope\n")
	s := Source{Template: ledger.NewItem{Kind: "urlcheck"}, Input: ledger.Input{Type: URL, Field: "url"}, CSV: "a.csv"}
	var got []string
	for f, err := range s.Items(context.Background()) {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, string(f.Item.Payload))
	}
	if diff := cmp.Diff([]string{`{"url":"http://a.example/"}`, "a.csv:3: nope: is neither a URL nor a file that " +
		"exists (a URL begins with https:// or http://)"}, got); diff != "" {
		t.Error(diff)
	}
}

// columns is a query that is not run, with these columns.
func columns(names ...string) *query.Query {
	q := &query.Query{File: "list.sql"}
	for _, name := range names {
		q.Columns = append(q.Columns, query.Column{Name: name})
	}
	return q
}

func TestCheck(t *testing.T) {
	tree(t, "a.csv")
	for _, test := range []struct {
		s    Source
		want string
	}{
		{Source{}, "no INPUT"},
		{Source{Args: []string{"-"}, From: "-"}, "-: stdin can be read once only"},
		{Source{Args: []string{"x"}, Key: "id"}, "--key id: names a column, so it goes with a table: --from with a .csv, " +
			".jsonl or .sql file"},
		{Source{From: "gone.txt"}, "gone.txt: does not exist"},
		{Source{From: "."}, ".: is a folder, not a file"},
		{Source{Args: []string{" "}}, `" ": is blank`},
		{Source{Args: []string{"a\xff"}}, "a\xff: key: not valid UTF-8"},
		{Source{Input: ledger.Input{Type: File}, Args: []string{"a.csv", "gone.csv"}}, "gone.csv: does not exist"},
		{Source{Input: ledger.Input{Type: File}, Args: []string{""}}, `"": is blank`},
		{Source{Args: []string{"x" + strings.Repeat("é", 4096)}}, "x" + strings.Repeat("é", 59) +
			"…: key: 8,193 bytes, at most 2,048"},
		{Source{Input: ledger.Input{Type: File}, Args: []string{"gone/*.csv"}}, "gone: does not exist"},
		{Source{Input: ledger.Input{Type: File}, Args: []string{"/dev/null"}}, "/dev/null: is neither a file nor a folder"},
		{Source{Input: ledger.Input{Type: URL}, Args: []string{"https://"}}, "https://: is a URL without a host"},
		{Source{Input: ledger.Input{Type: URL}, Args: []string{"https://u:secret@%zz/"}},
			"https://u:***@%zz/: has a \"%\" without two hexadecimal digits behind it"},
		{Source{Input: ledger.Input{Type: URL, Field: "url"}, Args: []string{"a.csv"},
			Payload: json.RawMessage(`{"url":"x"}`)}, `--set url="x": is the field that INPUT fills`},
		{Source{Query: columns("id")}, `list.sql: has no column "key"`},
		{Source{Query: columns("key", "subjekt"), Parse: mail{}.Parse}, "list.sql: no field subjekt:"},
	} {
		test.s.Template.Kind = "k"
		err := test.s.Check()
		if _, ok := errors.AsType[*ArgError](err); !ok || err.Error() != test.want {
			t.Errorf("%+v: %v, want %s", test.s, err, test.want)
		}
	}
}

func TestValidateFirst(t *testing.T) {
	s := Source{Template: ledger.NewItem{Kind: "mail"}, Input: ledger.Input{Field: "to"}, Args: []string{"x"},
		Validate: mail{}.Validate}
	for _, err := range s.Items(context.Background()) {
		if err == nil || err.Error() != `to: too short: "x"` {
			t.Errorf("%v", err)
		}
	}
}

// endless is a list without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, strings.Repeat("line\n", len(p)/5+1))
	e.read += n
	return n, nil
}

// A list is read while its items are added.
func TestStreams(t *testing.T) {
	in := &endless{}
	n := 0
	for _, err := range (&Source{Template: ledger.NewItem{Kind: "k"}, Args: []string{"-"},
		Stdin: in}).Items(context.Background()) {
		must.OK(t, err)
		if n++; n == 100_000 {
			break
		}
	}
	if ahead := in.read - 5*n; ahead > 1<<20 {
		t.Errorf("%d bytes were read ahead", ahead)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	for _, err := range (&Source{Template: ledger.NewItem{Kind: "k"}, Args: []string{"-"}, Stdin: &endless{}}).Items(ctx) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			break
		}
		if n++; n == 10 {
			cancel()
		}
	}
	if n != 10 {
		t.Errorf("%d items came, want 10", n)
	}
}
