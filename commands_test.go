package ledgerd

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// commandNamers may name commands of the program, each for its reason.
var commandNamers = map[string]string{"sdk/main.go": "the usage of a plugin's program names the command that runs it"}

// The libraries name no command of the program and none of its flags: they return acts (ledger/act), which a program
// words.
func TestLibrariesNameNoCommands(t *testing.T) {
	reference, err := os.ReadFile("docs/cli.md")
	must.OK(t, err)
	var commands []string
	for _, heading := range regexp.MustCompile(`(?m)^## ledgerd ([a-z]+)`).FindAllSubmatch(reference, -1) {
		commands = append(commands, string(heading[1]))
	}
	if len(commands) < 10 {
		t.Fatalf("docs/cli.md has only the commands %q; this test has lost its object", commands)
	}
	command := regexp.MustCompile(`\bledgerd (` + strings.Join(commands, "|") + `)\b`)
	flag := regexp.MustCompile(`(^|[ (])--[a-z]`)
	used := map[string]bool{}
	for _, s := range sources(t) {
		if !in(s.folder, "ledger", "sdk") || s.generated {
			continue
		}
		ast.Inspect(s.tree, func(node ast.Node) bool {
			if text, ok := node.(*ast.BasicLit); ok && text.Kind == token.STRING {
				found := command.FindString(text.Value)
				if found == "" && in(s.folder, "ledger") && !s.inTests { // programs of plugins have flags of their own
					found = flag.FindString(text.Value)
				}
				used[s.path] = used[s.path] || found != ""
				if found != "" && commandNamers[s.path] == "" {
					t.Errorf("%s: %q is of the command line; a library returns an act", s.set.Position(text.Pos()), found)
				}
			}
			return true
		})
	}
	for name := range commandNamers {
		if !used[name] {
			t.Errorf("commandNamers lists %s, which names no command", name)
		}
	}
}
