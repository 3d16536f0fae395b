//go:build unix

package chaostest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Patch replaces a text that occurs exactly once in a declaration of a package. The source stays as it is: the
// compiler reads another file instead (go build -overlay).
type Patch struct {
	Package  string // a folder, absolute or below the root of the module; if In is "", a file
	In       string // the declaration: Function, Type.Method, or the first name of a type, const or var
	Old, New string
}

// Overlay writes the patched files, and returns the path of the list for `go build -overlay` and `go test -overlay`.
func Overlay(root, dir string, patches []Patch) (string, error) {
	texts := map[string]string{}
	for _, p := range patches {
		path := p.Package
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		path, from, to, err := find(path, p.In, texts)
		if err != nil {
			return "", err
		}
		text := texts[path]
		if n := strings.Count(text[from:to], p.Old); n != 1 {
			return "", fmt.Errorf("%s of %s holds the text to be replaced %d times, not once: %q", p.In, p.Package, n, p.Old)
		}
		texts[path] = text[:from] + strings.Replace(text[from:to], p.Old, p.New, 1) + text[to:]
	}
	var list struct{ Replace map[string]string }
	list.Replace = map[string]string{}
	for path, text := range texts {
		f, err := os.CreateTemp(dir, "*.go")
		if err != nil {
			return "", err
		}
		_, err = f.WriteString(text)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		list.Replace[path] = f.Name()
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// find finds a declaration, and returns its file and its position there. texts holds the files as patched so far.
func find(pkg, name string, texts map[string]string) (path string, from, to int, err error) {
	files := []string{pkg}
	if name != "" {
		files, _ = filepath.Glob(filepath.Join(pkg, "*.go")) // an unreadable folder has none
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, read := texts[path]
		if !read {
			raw, err := os.ReadFile(path)
			if err != nil {
				return "", 0, 0, err
			}
			text = string(raw)
		}
		from, to := 0, len(text)
		if name != "" {
			if from, to, err = within(path, text, name); err != nil {
				return "", 0, 0, err
			}
		}
		if to > 0 {
			texts[path] = text
			return path, from, to, nil
		}
	}
	return "", 0, 0, fmt.Errorf("%s declares no %s", pkg, name)
}

// within returns the position of a declaration in a file; to is 0 if there is none.
func within(path, text, name string) (from, to int, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if n != nil && declared(n) == name {
			from, to = set.Position(n.Pos()).Offset, set.Position(n.End()).Offset
		}
		_, inside := n.(*ast.BlockStmt)
		return to == 0 && !inside
	})
	return from, to, nil
}

// declared returns the name that a node declares, "" if it declares nothing.
func declared(n ast.Node) string {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Recv == nil {
			return n.Name.Name
		}
		receiver, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(n.Recv.List[0].Type), "*"), "[")
		return receiver + "." + n.Name.Name
	case *ast.TypeSpec:
		return n.Name.Name
	case *ast.ValueSpec:
		return n.Names[0].Name
	}
	return ""
}

// clockPatch patches package time so that its wall clock can be wrong. A preloaded library cannot do that, because it
// does not reach a statically linked program. See internal/failpoint.
func clockPatch(ctx context.Context) (Patch, error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return Patch{}, fmt.Errorf("go env GOROOT: %w", err)
	}
	const now = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	return Patch{
		Package: filepath.Join(strings.TrimSpace(string(goroot)), "src/time/time.go"),
		Old:     "// Now returns the current local time.\nfunc Now() Time {\n" + now,
		New: "//go:linkname chaosOffset\nvar chaosOffset int64\n\n// Now returns the current local time.\nfunc Now() Time {\n" +
			strings.Replace(now, "\tif mono", "\tsec += chaosOffset / 1e9\n\tif mono", 1),
	}, nil
}

// Clocks chooses how a chaos build reads the time.
type Clocks bool

const (
	Plain         Clocks = false
	SkewableClock Clocks = true // for the fault Clock; the whole standard library is compiled for it
)

// Build compiles a chaos build of ledgerd with these patches.
func Build(ctx context.Context, root, out string, clocks Clocks, patches ...Patch) error {
	dir, err := os.MkdirTemp("", "ledgerd-chaos-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if clocks == SkewableClock {
		clock, err := clockPatch(ctx)
		if err != nil {
			return err
		}
		patches = append(patches, clock)
	}
	overlay, err := Overlay(root, dir, patches)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-tags", "chaos", "-overlay", overlay,
		"-o", out, "./cmd/ledgerchaos/ledgerd")
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, text)
	}
	return nil
}
