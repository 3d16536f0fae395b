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
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commandLine is a command of this program in a text: "ledgerd kind set K --keep 7d".
var commandLine = regexp.MustCompile("\\bledgerd((?: +(?:'[^'\n]*'|\"[^\"\n]*\"|[^\\s'\"`|,;()·…]+))+)")

// TestHintsAreCommands: every command line that the program prints or the documents show names a
// command and flags that exist.
func TestHintsAreCommands(t *testing.T) {
	var out bytes.Buffer
	root := testApp(&out).root()
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

// checkLine follows the words of a command line through the commands; "" means that all is well. A
// first word that is no command is prose, unless it is an old name of one.
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
		case cmd != root && !strings.ContainsAny(word, "%<{[A"): // a group needs one of its commands
			if regexp.MustCompile(`^[a-z]+$`).MatchString(word) {
				return "no command " + word + " below " + cmd.CommandPath()
			}
		case cmd == root && usualWords[word] != "":
			return "is now: ledgerd " + usualWords[word]
		default:
			return ""
		}
	}
	return ""
}

type placed struct{ place, text string }

// texts are the string literals of the product's Go files, and the documents.
func texts(t *testing.T, root string) (all []placed) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "node_modules" || name == ".git" || name == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md", strings.HasSuffix(name, ".sh"), strings.HasSuffix(name, ".yml"), strings.HasSuffix(name, ".service"):
			text, err := os.ReadFile(path)
			all = append(all, placed{path, strings.ReplaceAll(string(text), "\\\n", " ")})
			return err
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			return literals(path, func(place, text string) { all = append(all, placed{place, text}) })
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
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
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				yield(set.Position(lit.Pos()).String(), text)
			}
		}
		return true
	})
	return nil
}
