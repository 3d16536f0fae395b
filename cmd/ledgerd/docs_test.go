package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/cli"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/setup"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// testApp returns the program in this process. Its output goes to out.
func testApp(out *bytes.Buffer) *app.App {
	return app.New(&app.Interrupts{Soft: context.Background(), Hard: context.Background()}, app.Program{Plugins: plugins},
		strings.NewReader(""), out, out)
}

// TestDocs: docs/cli.md and docs/config.md are the program's own description.
func TestDocs(t *testing.T) {
	t.Run("cli", func(t *testing.T) { testDocs(t, "../../docs/cli.md", "docs") })
	t.Run("api", func(t *testing.T) { testDocs(t, "../../docs/api.md", "docs", "api") })
	t.Run("config", func(t *testing.T) { testDocs(t, "../../docs/config.md", "docs", "config") })
}

func testDocs(t *testing.T, file string, args ...string) {
	var out bytes.Buffer
	a := testApp(&out)
	if code := cli.Run(a.Interrupts, app.Program{Plugins: plugins}, args, strings.NewReader(""), &out,
		&out); code != failure.ExitOK {
		t.Fatalf("exit %d: %s", code, out.String())
	}
	if *update {
		must.OK(t, os.WriteFile(file, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(file)
	must.OK(t, err)
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("run: go generate ./cmd/ledgerd\n%s", diff)
	}
}

// docs/plugins/reference has the description of each bundled plugin, and of no removed plugin.
func TestPluginReferences(t *testing.T) {
	const dir = "../../docs/plugins/reference"
	want, err := setup.PluginReferences(plugins)
	must.OK(t, err)
	delete(want, "effect.md") // a plugin of these tests
	for name, text := range want {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "| `") && (strings.HasSuffix(line, "|  |\n") || strings.Contains(line, "| an object |") &&
				strings.Count(line, "|") == 4) {
				t.Errorf("%s: a field that is not described: %s", name, line)
			}
		}
		have, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("run: go generate ./cmd/ledgerd: %v", err)
		} else if diff := cmp.Diff(text, string(have)); diff != "" {
			t.Errorf("%s: run: go generate ./cmd/ledgerd\n%s", name, diff)
		}
	}
	entries, err := os.ReadDir(dir)
	must.OK(t, err)
	for _, e := range entries {
		if want[e.Name()] == "" {
			t.Errorf("%s is about no bundled plugin: remove it", e.Name())
		}
	}
}

// Every command has a summary, a place in the help, and flags with a description.
func TestCommandsExplainThemselves(t *testing.T) {
	var out bytes.Buffer
	var visit func(c *cobra.Command, top bool)
	visit = func(c *cobra.Command, top bool) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: summary %q", c.CommandPath(), c.Short)
		}
		if top && c.GroupID == "" {
			t.Errorf("%s: in no group of the help", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s: has no help", c.CommandPath(), f.Name)
			}
			if value, _ := pflag.UnquoteUsage(f); slices.Contains([]string{"string", "strings", "int", "uint", "value"}, value) {
				t.Errorf("%s --%s %s: that is a type of Go's, and no word for what it takes", c.CommandPath(), f.Name, value)
			}
		})
		for _, below := range c.Commands() {
			visit(below, false)
		}
	}
	for _, c := range cli.Root(testApp(&out)).Commands() {
		visit(c, true)
	}
}

// Every command has its page, and the page of ledgerd is printed.
func TestMan(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1795000000")
	dir := filepath.Join(t.TempDir(), "share", "man1")
	var out bytes.Buffer
	for _, args := range [][]string{{"self", "man", dir}, {"self", "man"}} {
		if code := cli.Run(testApp(&out).Interrupts, app.Program{Plugins: plugins}, args, strings.NewReader(""), &out,
			&out); code != failure.ExitOK {
			t.Fatalf("%s: exit %d: %s", args, code, out.String())
		}
	}
	pages := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		text, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
		}
		for _, want := range []string{`"` + strings.ToUpper(name) + `" "1" "Nov 2026"`, name + " - ", ".SH SYNOPSIS",
			".SH SEE ALSO"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %s", name, want)
			}
		}
		if pages++; pages == 1 && (string(text) != out.String() ||
			!strings.Contains(out.String(), "another agent or program holds it")) {
			t.Errorf("printed is another page:\n%s", cmp.Diff(string(text), out.String()))
		}
		for _, below := range c.Commands() {
			if below.IsAvailableCommand() {
				visit(below)
			}
		}
	}
	visit(cli.Root(testApp(&out)))
	if files, err := os.ReadDir(dir); err != nil || len(files) != pages {
		t.Errorf("%d files for %d commands, %v", len(files), pages, err)
	}
	if code := cli.Run(testApp(&out).Interrupts, app.Program{Plugins: plugins},
		[]string{"self", "man", filepath.Join(dir, "ledgerd.1")}, strings.NewReader(""), &out,
		&out); code != failure.ExitUsage {
		t.Errorf("into a file: exit %d", code)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out bytes.Buffer
		if code := cli.Run(testApp(&out).Interrupts, app.Program{Plugins: plugins}, []string{"self", "completion", shell},
			strings.NewReader(""), &out, &out); code != failure.ExitOK || !strings.Contains(out.String(), "ledgerd") {
			t.Errorf("%s: exit %d, %d bytes", shell, code, out.Len())
		}
	}
	var out bytes.Buffer
	if code := cli.Run(testApp(&out).Interrupts, app.Program{Plugins: plugins}, []string{"self", "completion", "csh"},
		strings.NewReader(""), &out, &out); code != failure.ExitUsage {
		t.Errorf("exit %d: %s", code, out.String())
	}
}
