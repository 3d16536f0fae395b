package cli

import (
	"bytes"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/must"
)

// TestFilesAreNamedAsCommands: the file of a command has its name, behind that of its group unless that is the
// package. Every other file begins with the name of the one command that it belongs to, or the comment of the package
// names it as shared.
func TestFilesAreNamedAsCommands(t *testing.T) {
	in := &app.Interrupts{Soft: t.Context(), Hard: t.Context()}
	root := Root(app.New(in, app.Program{}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}))
	var names []string
	var walk func(c *cobra.Command, group string)
	walk = func(c *cobra.Command, group string) {
		for _, sub := range c.Commands() {
			if name := group + sub.Name(); name != "help" {
				names = append(names, name)
				walk(sub, name)
			}
		}
	}
	walk(root, "")
	found := map[string]bool{}
	for _, folder := range []string{"item", "work", "plugin", "setup"} {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", folder, files, err)
		}
		var shared, others string
		for _, file := range files {
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
			must.OK(t, err)
			shared += tree.Doc.Text()
			base := filepath.Base(file)
			name := strings.TrimSuffix(base, ".go")
			if folder == "plugin" {
				name = strings.TrimSuffix(folder+name, folder)
			}
			found[name] = true
			belongs := func(command string) bool { return strings.HasPrefix(name, command) }
			if !strings.HasSuffix(name, "_test") && !slices.ContainsFunc(names, belongs) {
				others += " " + base
			}
		}
		for base := range strings.FieldsSeq(others) {
			if !strings.Contains(shared, base) {
				t.Errorf("%s/%s: no command has a name with which it begins, and the comment of the package does not name it",
					folder, base)
			}
		}
	}
	for _, name := range names {
		if !found[name] {
			t.Errorf("the command %s has no file %s.go", name, name)
		}
	}
}
