package chaostest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Patch replaces a piece of a source file that must be there exactly once. The file itself stays
// as it is: the compiler is told to read another one in its place (go build -overlay).
type Patch struct {
	File     string // below the root of the module, or absolute
	Old, New string
}

// Overlay writes what the compiler is to read in place of the patched files, and returns the path
// of the list that `go build -overlay` and `go test -overlay` take.
func Overlay(root, dir string, patches []Patch) (string, error) {
	texts := map[string]string{}
	for _, p := range patches {
		path := p.File
		if !filepath.IsAbs(path) {
			path = filepath.Join(root, path)
		}
		text, read := texts[path]
		if !read {
			raw, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			text = string(raw)
		}
		if n := strings.Count(text, p.Old); n != 1 {
			return "", fmt.Errorf("%s holds the text to be replaced %d times, not once: %q", p.File, n, p.Old)
		}
		texts[path] = strings.Replace(text, p.Old, p.New, 1)
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

// clockPatch gives package time a wall clock that can be off; a library that is loaded before a
// program does not reach one that is linked statically. See internal/failpoint.
func clockPatch(ctx context.Context) (Patch, error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return Patch{}, fmt.Errorf("go env GOROOT: %w", err)
	}
	const now = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	return Patch{
		File: filepath.Join(strings.TrimSpace(string(goroot)), "src/time/time.go"),
		Old:  "// Now returns the current local time.\nfunc Now() Time {\n" + now,
		New: "//go:linkname chaosOffset\nvar chaosOffset int64\n\n// Now returns the current local time.\nfunc Now() Time {\n" +
			strings.Replace(now, "\tif mono", "\tsec += chaosOffset / 1e9\n\tif mono", 1),
	}, nil
}

// Build makes a chaos build of ledgerd with these patches at a path.
func Build(ctx context.Context, root, out string, patches ...Patch) error {
	dir, err := os.MkdirTemp("", "ledgerd-chaos-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	clock, err := clockPatch(ctx)
	if err != nil {
		return err
	}
	overlay, err := Overlay(root, dir, append(patches, clock))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "chaos", "-overlay", overlay, "-o", out, "./cmd/ledgerd")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, text)
	}
	return nil
}
