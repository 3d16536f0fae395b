package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestReadme runs the terminal session of the README on the sample inbox: what a reader sees
// there is what the program says.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, session, found := strings.Cut(string(text), "```console\n")
	session, _, closed := strings.Cut(session, "```")
	if !found || !closed {
		t.Fatal("README.md has no terminal session")
	}
	var script, files strings.Builder
	seconds := regexp.MustCompile(`[0-9]+\.[0-9] s\b`)
	for i, step := range strings.Split(session, "$ ")[1:] {
		command, output, _ := strings.Cut(step, "\n")
		fmt.Fprintf(&script, "exec sh -c '%s 2>&1 || true'\nstdin stdout\nexec steady\ncmp stdout step%d\n", command, i)
		fmt.Fprintf(&files, "-- step%d --\n%s", i, seconds.ReplaceAllString(output, "0.0 s"))
	}
	file := filepath.Join(t.TempDir(), "readme.txtar")
	if err := os.WriteFile(file, []byte(script.String()+files.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Files: []string{file}, Setup: func(e *testscript.Env) error {
		setUp(e)
		e.Setenv("XDG_DATA_HOME", "")
		return os.CopyFS(filepath.Join(e.WorkDir, "inbox"), os.DirFS("../../examples/inbox"))
	}})
}
