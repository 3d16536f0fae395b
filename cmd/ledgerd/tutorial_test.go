package main

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestTutorial runs docs/plugins/tutorial.md in the home of a user who has Go and ledgerd and makes a first plugin. It
// compares the output. It takes the SDK from this tree instead of fetching it, so the plugin's go.mod lies beside it.
func TestTutorial(t *testing.T) {
	t.Parallel() // it mostly waits for the go command
	const file = "../../docs/plugins/tutorial.md"
	text, err := os.ReadFile(file)
	must.OK(t, err)
	home := t.TempDir()
	m := newMachine(t, "")
	env := append(goOf(t, home, "ledgerd-plugin-words"),
		"HOME="+home, "PATH="+filepath.Dir(m.program)+":"+os.Getenv("PATH"), "TMPDIR="+os.TempDir(), "TZ=UTC")
	got := regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```\n").ReplaceAllStringFunc(string(text),
		func(block string) string {
			language, body, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(block, "```"), "```\n"), "\n")
			switch language {
			case "console":
				return "```console\n" + session(t, body, home, env) + "```\n"
			case "diff":
				patch(t, body, filepath.Join(home, "ledgerd-plugin-words"))
			}
			return block
		})
	if diff := cmp.Diff(steadied(string(text)), steadied(got)); diff != "" {
		t.Errorf("-%s +what happens\n%s", file, diff)
	}
	if *update {
		must.OK(t, os.WriteFile(file, []byte(strings.ReplaceAll(got, home, "/home/you")), 0o644))
	}
}

// goOf returns an environment in which the go command uses the SDK of this tree for a plugin's module.
func goOf(t *testing.T, home, module string) []string {
	t.Helper()
	root, err := filepath.Abs("../..")
	must.OK(t, err)
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "plugin.sum"), sums, 0o600)
	}
	mod := fmt.Sprintf("module example.com/%s\n\ngo 1.26.0\n\nreplace github.com/ledgerd/ledgerd => %s\n", module, root)
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "plugin.mod"), []byte(mod), 0o600)
	}
	must.OK(t, err)
	// With the flags of make test, the packages of this tree are in the cache. Vet would look at all that they import.
	// sdk/template runs TestConformance of the new plugin, and plugin check its list on the finished one.
	env := []string{"GOFLAGS=-trimpath -ldflags=-s -vet=off -skip=^TestConformance$ -buildvcs=false -modfile=" +
		filepath.Join(home, "plugin.mod")}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		must.OK(t, err)
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// patch changes files as a person would who follows the difference.
func patch(t *testing.T, diff, dir string) {
	t.Helper()
	git := exec.Command("git", "apply", "-")
	git.Dir, git.Stdin = dir, strings.NewReader(diff)
	git.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := git.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, diff, out)
	}
}

// steadied returns a text in which the parts that differ between runs are the same.
func steadied(s string) string {
	for pattern, with := range map[string]string{
		`[0-9]+\.[0-9]{3}s\b`:                  "0.100s",
		`took [0-9]+\.[0-9] s\b`:               "took 0.1 s",
		`\(cached\)`:                           "0.100s",
		`[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}`: "TIME",
		`by \S+/[0-9]+/[0-9a-f]{6}`:            "by AGENT",
		`\+[0-9a-f]{6}\b`:                      "+DIGEST",
		`sha256 [0-9a-f]{64}`:                  "sha256 DIGEST",
		`go mod tidy   # if it does .*`:        "go mod tidy", // of a ledgerd that knows no clone
		`/\S*/ledgerd-plugin-words/`:           "HOME/ledgerd-plugin-words/",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, with)
	}
	return timeless(s)
}

// TestGuide compiles the code of docs/plugins/guide.md. Its blocks are one program.
func TestGuide(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/plugins/guide.md")
	must.OK(t, err)
	var program strings.Builder
	for _, block := range regexp.MustCompile("(?ms)^```go\n(.*?)^```\n").FindAllStringSubmatch(string(text), -1) {
		program.WriteString(block[1] + "\n")
	}
	formatted, err := format.Source([]byte(program.String()))
	must.OK(t, err)
	if diff := cmp.Diff(strings.TrimSpace(string(formatted)), strings.TrimSpace(program.String())); diff != "" {
		t.Error("not formatted: -gofmt +guide\n", diff)
	}
	file := filepath.Join(t.TempDir(), "guide.go")
	must.OK(t, os.WriteFile(file, formatted, 0o600))
	vet := exec.Command("go", "vet", file)
	vet.Dir = "../.."
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
