package ledgerd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

const module = "github.com/ledgerd/ledgerd"

// A source is one Go file of this module.
type source struct {
	path      string // from the root, with slashes
	folder    string // "." for the root
	inTests   bool   // a _test.go file, or part of a package that exists for tests
	generated bool
	lines     int
	set       *token.FileSet
	tree      *ast.File
}

// sources parses every Go file of the module. It reads them itself instead of asking `go list`, so
// that the go command knows which files this test depends on and runs it again when one changes.
func sources(t *testing.T) (all []source) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipFolder(name)
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(name)
		all = append(all, source{
			path:      slashed,
			folder:    path.Dir(slashed),
			inTests:   strings.HasSuffix(name, "_test.go") || forTests(path.Dir(slashed)),
			generated: ast.IsGenerated(tree),
			lines:     bytes.Count(text, []byte("\n")),
			set:       set,
			tree:      tree,
		})
		return nil
	})
	must.OK(t, err)
	if len(all) < 10 {
		t.Fatalf("found only %d Go files; this test runs in the root of the module", len(all))
	}
	return all
}

// skipFolder leaves out what the go command leaves out.
func skipFolder(name string) error {
	base := filepath.Base(name)
	if name == "." {
		return nil
	}
	if base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return filepath.SkipDir // a module of its own
	}
	return nil
}

// forTests reports whether a package exists for tests; its name must show it.
func forTests(folder string) bool {
	return strings.HasSuffix(folder, "test") || in(folder, "cmd/ledgerchaos", "internal/must")
}

// imports lists what a file imports; packages of this module by their folder.
func (s source) imports() (paths []string) {
	for _, spec := range s.tree.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser took it
		}
		paths = append(paths, strings.TrimPrefix(imported, module+"/"))
	}
	return paths
}

// in reports whether a package is one of these folders or below one.
func in(pkg string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return pkg == folder || strings.HasPrefix(pkg, folder+"/")
	})
}

func TestEveryPackageExplainsItself(t *testing.T) {
	comments := map[string][]string{}
	names := map[string]string{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		names[s.folder] = s.tree.Name.Name
		if s.tree.Doc != nil {
			comments[s.folder] = append(comments[s.folder], s.tree.Doc.Text())
		}
	}
	for folder, name := range names {
		if len(comments[folder]) != 1 {
			t.Errorf("%s: %d package comments, want one", folder, len(comments[folder]))
			continue
		}
		start := "Package " + name + " "
		if name == "main" {
			start = "Command " + path.Base(folder) + " "
		}
		if comment := comments[folder][0]; !strings.HasPrefix(comment, start) || len(comment) < len(start)+30 {
			t.Errorf("%s: its comment must start with %q and explain its idea, it is %q", folder, start, comment)
		}
	}
}

// A name describes a thing's purpose; these names only show that the purpose was not known.
func TestNames(t *testing.T) {
	empty := regexp.MustCompile(`^(utils?|common|helpers?|misc|stuff)$`)
	for _, s := range sources(t) {
		stem := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.path), ".go"), "_test")
		for _, name := range []string{stem, path.Base(s.folder), s.tree.Name.Name} {
			if empty.MatchString(name) {
				t.Errorf("%s: %q does not tell what is in it", s.path, name)
			}
		}
	}
}

// A note to oneself belongs into an issue.
func TestNoNotesToOneself(t *testing.T) {
	note := regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	for _, s := range sources(t) {
		for _, group := range s.tree.Comments {
			if found := note.FindString(group.Text()); found != "" {
				t.Errorf("%s: %s", s.set.Position(group.Pos()), found)
			}
		}
	}
}

// sleepers may call time.Sleep in tests, each for its reason, beside files that use synctest: in its bubbles time is
// not waited for. A test never sleeps to wait for something: it waits on a channel, on a process's end, or polls with
// a deadline.
var sleepers = map[string]string{
	"internal/chaostest/faults.go":     "how long a fault lasts",
	"internal/chaostest/remote.go":     "how long a wire is frozen",
	"internal/pluginproc/acts_test.go": "the work that a plugin does",
	"ledger/sqlite/writer_test.go":     "polls the writer's queue with a deadline; in one test a wait is what is tested",
	"ledger/worker/rig_test.go":        "the time of synctest's bubbles, and no other",
}

func TestTestsDoNotSleep(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		bubbles := slices.ContainsFunc(s.tree.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == `"testing/synctest"`
		})
		if !s.inTests || bubbles {
			continue
		}
		ast.Inspect(s.tree, func(node ast.Node) bool {
			if call, ok := node.(*ast.SelectorExpr); ok && call.Sel.Name == "Sleep" {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "time" {
					used[s.path] = true
					if sleepers[s.path] == "" {
						t.Errorf("%s: time.Sleep in a test", s.set.Position(call.Pos()))
					}
				}
			}
			return true
		})
	}
	for name := range sleepers {
		if !used[name] {
			t.Errorf("sleepers lists %s, which does not sleep", name)
		}
	}
}

// A test that cannot run fails and names what is missing. (A *rapid.T may skip: it means that an
// action does not fit the state, not that a check is left out.)
func TestTestsAreNotSkipped(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.tree, func(node ast.Node) bool {
			var kind *ast.FuncType
			var body *ast.BlockStmt
			switch f := node.(type) {
			case *ast.FuncDecl:
				kind, body = f.Type, f.Body
			case *ast.FuncLit:
				kind, body = f.Type, f.Body
			}
			if body == nil {
				return true
			}
			for _, call := range skips(testValues(kind), body) {
				t.Errorf("%s: a test is skipped", s.set.Position(call.Pos()))
			}
			return true
		})
	}
}

// testValues are the names of a function's parameters of package testing's types.
func testValues(kind *ast.FuncType) (names []string) {
	for _, param := range kind.Params.List {
		of := param.Type
		if pointer, ok := of.(*ast.StarExpr); ok {
			of = pointer.X
		}
		if sel, ok := of.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "testing" {
				for _, name := range param.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// skips finds calls of Skip, Skipf and SkipNow of these values in a body, leaving out functions in
// it that have parameters of the same names, and calls of testing.Short.
func skips(values []string, body ast.Node) (calls []ast.Node) {
	ast.Inspect(body, func(node ast.Node) bool {
		if f, ok := node.(*ast.FuncLit); ok && node != body {
			for _, param := range f.Type.Params.List {
				for _, name := range param.Names {
					if slices.Contains(values, name.Name) {
						return false
					}
				}
			}
		}
		sel, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		value, ok := sel.X.(*ast.Ident)
		if ok && (strings.HasPrefix(sel.Sel.Name, "Skip") && slices.Contains(values, value.Name) ||
			value.Name == "testing" && sel.Sel.Name == "Short") {
			calls = append(calls, node)
		}
		return true
	})
	return calls
}

// modernc.org/sqlite is generated against one version of modernc.org/libc and breaks with others.
func TestSQLiteHasTheLibcItWasMadeFor(t *testing.T) {
	run := func(args ...string) []byte {
		cmd := exec.Command("go", args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		return bytes.TrimSpace(out)
	}
	goMod := string(run("list", "-m", "-f", "{{.GoMod}}", "modernc.org/sqlite"))
	var mod struct {
		Require []struct{ Path, Version string }
	}
	must.OK(t, json.Unmarshal(run("mod", "edit", "-json", goMod), &mod))
	for _, needed := range mod.Require {
		if needed.Path == "modernc.org/libc" {
			if have := string(run("list", "-m", "-f", "{{.Version}}", "modernc.org/libc")); have != needed.Version {
				t.Errorf("modernc.org/libc is %s, and modernc.org/sqlite was made for %s: go get modernc.org/libc@%s",
					have, needed.Version, needed.Version)
			}
			return
		}
	}
	t.Error("modernc.org/sqlite names no modernc.org/libc; this test has lost its object")
}

// The files that a visitor looks for first.
func TestTheHouseHasADoor(t *testing.T) {
	for name, mustHave := range map[string]string{
		"README.md":       "ledgerd",
		"CONTRIBUTING.md": "make test",
		"CHANGELOG.md":    "## [Unreleased]",
		"LICENSE":         "Apache License",
		"go.mod":          "module " + module,
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Contains(text, []byte(mustHave)) {
			t.Errorf("%s does not contain %q", name, mustHave)
		}
	}
}

// The map in doc.go leads only to places that exist, and to all rooms of the program, of the ledger and of the SDK.
func TestTheMapIsRight(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	must.OK(t, err)
	entry := regexp.MustCompile(`^//\t([a-z][a-z0-9/]*)(/NAME)?  +\S`)
	found := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		match := entry.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		found++
		if info, err := os.Stat(match[1]); err != nil || !info.IsDir() {
			t.Errorf("doc.go names %s, which is no folder here", match[1])
		}
	}
	if found == 0 {
		t.Errorf("no entry of the map matches %v", entry)
	}
	missing := map[string]bool{}
	for _, s := range sources(t) {
		if !in(s.folder, "internal", "ledger", "sdk") {
			continue
		}
		parts := strings.SplitN(s.folder, "/", 3)
		room := path.Join(parts[:min(2, len(parts))]...)
		missing[room] = !regexp.MustCompile(regexp.QuoteMeta(room) + `\b`).Match(text)
	}
	for room := range missing {
		if missing[room] {
			t.Errorf("doc.go does not name %s", room)
		}
	}
}

// A store is composed of small interfaces, so that a reader meets one part of it at a time.
func TestInterfacesAreSmall(t *testing.T) {
	const most = 10 // methods of its own
	for _, s := range sources(t) {
		if s.folder != "ledger" {
			continue
		}
		ast.Inspect(s.tree, func(node ast.Node) bool {
			i, ok := node.(*ast.InterfaceType)
			if !ok {
				return true
			}
			n := 0
			for _, m := range i.Methods.List {
				n += len(m.Names)
			}
			if n > most {
				t.Errorf("%s: an interface of %d methods, at most %d", s.set.Position(i.Pos()), n, most)
			}
			return true
		})
	}
}
