package filecsv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

// rejectsOf returns the names and texts of the files in dir.
func rejectsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.OK(t, err)
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must.OK(t, err)
		files[e.Name()] = string(text)
	}
	return files
}

// attempt scans a file with a reject file in dir.
func attempt(t *testing.T, dir, path string, in In, number int64) golden {
	t.Helper()
	r, err := newRejects(dir, path, "kind\x00scope\x00"+path, number)
	must.OK(t, err)
	defer r.close()
	o := plainOptions()
	o.rejects = r
	return scanned(t, path, in, o)
}

func TestRejects(t *testing.T) {
	dir, rejects := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "left overs\n.csv")
	in := plain()
	in.Types = map[string]string{"id": "int"}
	in.Unique = []string{"name"}
	in.MaxBadRows = 2

	write(t, path, "id,name\n1,Anna\nx,Bo\n2\n3,\"An\"na\n4,Anna\n5,Eve\n6,\"Anna\"\n")
	g := attempt(t, rejects, path, in, 1)
	if g.Code != badRows || filepath.Dir(g.Output.Rejects) != rejects {
		t.Errorf("got %+v", g)
	}
	name := filepath.Base(g.Output.Rejects)
	if !strings.HasPrefix(name, "left_overs_.csv.") || !strings.HasSuffix(name, ".rejects.csv") {
		t.Errorf("the reject file is called %q", name)
	}
	want := map[string]string{name: `line,column,reason,id,name
3,id,"not an integer: ""x""",x,Bo
4,,"the number of fields is 1, not 2",2
5,name,text after the closing quote at character 6 of the line,"3,""An""na"
6,name,repeats the value of line 2,4,Anna
8,name,repeats the value of line 2,6,Anna
`}
	if d := cmp.Diff(want, rejectsOf(t, rejects)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}

	// A better file replaces the same reject file.
	write(t, path, "id,name\n1,Anna\nx,Bo\n")
	if g = attempt(t, rejects, path, in, 2); g.Code != "" || filepath.Base(g.Output.Rejects) != name {
		t.Errorf("got %+v", g)
	}
	want[name] = "line,column,reason,id,name\n3,id,\"not an integer: \"\"x\"\"\",x,Bo\n"
	if d := cmp.Diff(want, rejectsOf(t, rejects)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}

	// A file that cannot be read to its end has no complete findings, so the earlier reject file stays.
	write(t, path, "id,name\ny,Bo\n1,\"Anna\n")
	if g = attempt(t, rejects, path, in, 3); g.Code != "unterminated_quote" || g.Output.Rejects != "" {
		t.Errorf("got %+v", g)
	}
	if d := cmp.Diff(want, rejectsOf(t, rejects)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}

	// A good file removes the reject file.
	write(t, path, "id,name\n1,Anna\n")
	if g = attempt(t, rejects, path, in, 4); g.Code != "" || g.Output.Rejects != "" {
		t.Errorf("got %+v", g)
	}
	if d := cmp.Diff(map[string]string{}, rejectsOf(t, rejects)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestRejectNames(t *testing.T) {
	dir := t.TempDir()
	names := map[string]string{}
	for _, c := range []struct{ path, identity string }{
		{"/in/a.csv", "1"}, {"/in/a.csv", "2"}, {"/other/a.csv", "3"},
		{"/in/..", "4"}, {"/in/\x1b[31m<b>é\x00.csv", "5"}, {"/in/" + strings.Repeat("x", 300), "6"},
	} {
		r, err := newRejects(dir, c.path, c.identity, 1)
		must.OK(t, err)
		must.OK(t, r.add([]string{"a"}, BadRow{Line: 2}, nil))
		path, err := r.commit()
		must.OK(t, err)
		r.close()
		if filepath.Dir(path) != dir || len(filepath.Base(path)) > 150 || strings.ContainsAny(filepath.Base(path),
			"\x1b<\x00") || names[path] != "" {
			t.Errorf("%q becomes %q, as %q did", c.path, path, names[path])
		}
		names[path] = c.path
	}
	if got := len(rejectsOf(t, dir)); got != len(names) {
		t.Errorf("%d files, want %d", got, len(names))
	}
}

func TestNoRejectDir(t *testing.T) {
	if _, err := newRejects(filepath.Join(t.TempDir(), "none"), "a.csv", "", 1); codeOf(err) != "reject_file" {
		t.Errorf("got %v", err)
	}
}
