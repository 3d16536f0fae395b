package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/must"
)

// commandLine matches a command of this program in a text: "ledgerd kind set K --keep 7d".
var commandLine = regexp.MustCompile("\\bledgerd((?: +(?:'[^'\n]*'|\"[^\"\n]*\"|[^\\s'\"`|,;()·…]+))+)")

// Every command line that the program prints or the documents show has a command and flags that exist.
func TestHintsAreCommands(t *testing.T) {
	var out bytes.Buffer
	root := cli.Root(testApp(&out))
	root.InitDefaultHelpCmd()
	found := 0
	for _, text := range texts(t, "../..") {
		for _, m := range commandLine.FindAllStringSubmatch(text.text, -1) {
			words := strings.Fields(m[1])
			if problem := checkLine(root, words); problem != "" {
				t.Errorf("%s: ledgerd%s: %s", text.place, m[1], problem)
			}
			found++
		}
	}
	if found < 300 {
		t.Errorf("only %d command lines found", found)
	}
}

// A hint is a command that can be pasted as it is, and shows no password.
func TestTyped(t *testing.T) {
	for _, test := range []struct{ db, source, config, hint, want string }{
		{"", "", "", "ledgerd db migrate", "ledgerd db migrate"},
		{"sqlite:a b.db", "LEDGERD_DB", "", "ledgerd db migrate", "ledgerd db migrate"},
		{"sqlite:/a/b-1.db", app.DbFlag, "", "ledgerd db migrate", "ledgerd --db sqlite:/a/b-1.db db migrate"},
		{"sqlite:it's.db", app.DbFlag, "", "make one: ledgerd db migrate   (now)",
			`make one: ledgerd --db 'sqlite:it'\''s.db' db migrate   (now)`},
		{"postgres://ann@h/d?search_path=s&x=y", app.DbFlag, "", "ledgerd ls",
			"ledgerd --db 'postgres://ann@h/d?search_path=s&x=y' ls"},
		{"sqlite:été.db", app.DbFlag, "", "ledgerd ls", "ledgerd --db 'sqlite:été.db' ls"},
		{"postgres://ann:secret@h/d", app.DbFlag, "", "ledgerd ls", "ledgerd --db … ls"},
		{"sqlite:a.db", app.DbFlag, "my.toml", "ledgerd ls, or ledgerd plugin ls",
			"ledgerd --config my.toml --db sqlite:a.db ls, or ledgerd --config my.toml plugin ls"},
		{"", "", "", "did you mean ledgerd cancel?   all commands: ledgerd --help",
			"did you mean ledgerd cancel?   all commands: ledgerd --help"},
		{"", "", "", "this ledgerd needs rest", "this ledgerd needs rest"},
		{"", "", "", "ledgerd retry 7, ledgerd finish 7 --agent YOU, or ledgerd cancel 7",
			"ledgerd retry 7, ledgerd finish 7 --agent YOU, or ledgerd cancel -y 7"},
		{"", "", "", "ledgerd retry --where 'kind:k state:dead'", "ledgerd retry -y --where 'kind:k state:dead'"},
		{"", "", "", "ledgerd finish --outcome released --where agent:ann --force",
			"ledgerd finish -y --outcome released --where agent:ann --force"},
		{"sqlite:a.db", app.DbFlag, "", "ledgerd ls --db sqlite:b.db", "ledgerd ls --db sqlite:b.db"},
	} {
		a := testApp(new(bytes.Buffer))
		cli.Root(a)
		a.Db, a.DbSource, a.ConfigFile, a.ConfigTyped = test.db, test.source, test.config, test.config != ""
		if got := a.Typed(test.hint); got != test.want {
			t.Errorf("%s: %s, want %s", test.hint, got, test.want)
		}
	}
}

// A text with a command line is printed by advise, by tell or through typed, and not directly, since these know what
// was typed.
func TestHintsAreTyped(t *testing.T) {
	root := cli.Root(testApp(new(bytes.Buffer)))
	var files []string
	for _, pattern := range []string{"../../internal/cli/*.go", "../../internal/cli/*/*.go"} {
		found, err := filepath.Glob(pattern)
		must.OK(t, err)
		files = append(files, found...)
	}
	if len(files) < 50 {
		t.Fatalf("only %d files: this test has lost its object", len(files))
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, 0)
		must.OK(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			printing, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !strings.HasPrefix(printing.Sel.Name, "Fprint") && printing.Sel.Name != "WriteString" {
				return true
			}
			for _, arg := range call.Args {
				ast.Inspect(arg, func(n ast.Node) bool {
					lit, ok := n.(*ast.BasicLit)
					if !ok || lit.Kind != token.STRING {
						return true
					}
					if m := app.Proposed().FindStringSubmatch(lit.Value); m != nil && slices.ContainsFunc(root.Commands(),
						func(c *cobra.Command) bool { return c.Name() == m[1] }) {
						t.Errorf("%s: the hint %s is printed as it is, not with advise", set.Position(lit.Pos()), lit.Value)
					}
					return true
				})
			}
			return true
		})
	}
}

// checkLine checks the words of a command line against the commands; "" means that it is correct. A line whose first
// word is no command is prose.
func checkLine(root *cobra.Command, words []string) string {
	cmd := root
	for i := 0; i < len(words); i++ {
		word := strings.TrimRight(words[i], ".:?]")
		if word == "--" || cmd != root && strings.HasSuffix(words[i-1], ":") { // the end of a sentence
			return ""
		}
		if name, ok := strings.CutPrefix(word, "--"); ok {
			name, value, joined := strings.Cut(name, "=")
			if name == "help" || name == "help-all" || name == "version" {
				continue
			}
			f := cmd.Flags().Lookup(name)
			if f == nil {
				f = root.PersistentFlags().Lookup(name)
			}
			if f == nil && !strings.Contains(name, "%") {
				return "no flag --" + name
			}
			if f != nil && f.NoOptDefVal == "" && !joined && value == "" {
				i++ // its value
			}
			continue
		}
		if strings.HasPrefix(word, "-") || !cmd.HasSubCommands() {
			continue
		}
		next, _, err := cmd.Find([]string{word})
		switch {
		case err == nil && next != cmd:
			cmd = next
		case cmd != root && !strings.ContainsAny(word, "%<{[A"): // a group must be followed by one of its commands
			if regexp.MustCompile(`^[a-z]+$`).MatchString(word) {
				return "no command " + word + " below " + cmd.CommandPath()
			}
		default:
			return ""
		}
	}
	return ""
}

// placed is a text with its file, or with its file and line.
type placed struct{ place, text string }

// texts returns the string literals of the product's Go files, and the documents.
func texts(t *testing.T, root string) (all []placed) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "node_modules" || name == ".git" || name == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md", strings.HasSuffix(name, ".sh"), strings.HasSuffix(name,
			".yml"), strings.HasSuffix(name, ".service"):
			text, err := os.ReadFile(path)
			all = append(all, placed{path, strings.ReplaceAll(string(text), "\\\n", " ")})
			return err
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			return literals(path, func(place, text string) { all = append(all, placed{place, text}) })
		}
		return nil
	})
	must.OK(t, err)
	return all
}

// literals yields the string literals of a Go file, and its package comment.
func literals(path string, yield func(place, text string)) error {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	if tree.Doc != nil {
		yield(path, tree.Doc.Text())
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, constant := joined(e)
		if constant {
			yield(set.Position(n.Pos()).String(), text)
		}
		return !constant
	})
	return nil
}

// joined returns the text of a literal, or of several joined by +, because a command line may be split.
func joined(e ast.Expr) (text string, constant bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := joined(e.X)
		right, also := joined(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}
