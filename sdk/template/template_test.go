package template_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/python/pythontest"
	"github.com/ledgerd/ledgerd/sdk/template"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// made is a folder with a new plugin. Its SDK is that of a version or a clone.
func made(t *testing.T, name, language, version, clone string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ledgerd-plugin-"+name)
	files, err := template.Write(dir, name, language, version, clone)
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if rest, _ := filepath.Rel(dir, path); !strings.HasPrefix(rest, "ledgerd/") &&
			strings.Contains(rest+string(text), "sample") {
			t.Errorf("%s still has the template's name", rest)
		}
		there = append(there, strings.TrimPrefix(path, dir+"/"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(there) != len(files) {
		t.Errorf("Write returned %v, there are %v", files, there)
	}
	return dir
}

// run runs a command in a folder.
func run(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestGo: the tutorial's test builds a plugin in Go and tests it; here is what it is made of.
func TestGo(t *testing.T) {
	for version, want := range map[string]string{
		"v0.3.1":                               "v0.3.1",
		"v0.3.2-0.20261120101112-0123456789ab": "v0.3.2-0.20261120101112-0123456789ab",
		"v0.3.1-4-g0123456":                    "", // it cannot be fetched
		"(devel)":                              "",
	} {
		var mod struct {
			Go      string
			Require []struct{ Path, Version string }
		}
		dir := made(t, "word-count", "go", version, "")
		if err := json.Unmarshal([]byte(run(t, dir, nil, "go", "mod", "edit", "-json")), &mod); err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(mod.Require) == 1 && mod.Require[0].Path == "github.com/ledgerd/ledgerd" {
			got = mod.Require[0].Version
		}
		if got != want || len(mod.Require) > 1 {
			t.Errorf("version %s: requires %v", version, mod.Require)
		}
		ours, err := os.ReadFile("../../go.mod")
		if err != nil || !strings.Contains(string(ours), "\ngo "+mod.Go+"\n") {
			t.Errorf("it is for Go %s, and the SDK is not (%v)", mod.Go, err)
		}
		if out := run(t, dir, nil, "gofmt", "-l", "."); out != "" {
			t.Errorf("not formatted: %s", out)
		}
	}
}

// Built in a clone, ledgerd makes plugins that need no release: what go.mod has compiles without any registry.
func TestGoFromAClone(t *testing.T) {
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := made(t, "word-count", "go", "v0.3.2-0.20261120101112-0123456789ab", clone)
	run(t, dir, []string{"GOFLAGS=-mod=mod", "GOWORK=off"}, "go", "mod", "tidy")
	if at := run(t, dir, []string{"GOWORK=off"}, "go", "list", "-m", "-f", "{{.Replace.Path}}",
		"github.com/ledgerd/ledgerd"); strings.TrimSpace(at) != clone {
		t.Errorf("the SDK is taken from %s, want %s", at, clone)
	}
	run(t, dir, []string{"GOWORK=off"}, "go", "build", "-ldflags=-s -w", "-o", "program", ".")
}

func TestNode(t *testing.T) {
	dir := made(t, "word-count", "node", "", "")
	packages, err := filepath.Abs("../node/node_modules")
	if err == nil {
		_, err = os.Stat(packages)
	}
	if err == nil {
		err = os.Symlink(packages, filepath.Join(dir, "node_modules"))
	}
	if err != nil {
		t.Fatal("run make node-packages: ", err)
	}
	if out := run(t, dir, nil, "node", "--test"); !strings.Contains(out, "pass 2") {
		t.Error(out)
	}
	run(t, dir, nil, "npm", "ls", "--all") // fails if package.json, its lock and what is installed differ
	run(t, dir, nil, "node", "ledgerd/bundle.js", "ledgerd-plugin-word-count", "dist/ledgerd-plugin-word-count")
	startsAs(t, filepath.Join(dir, "dist"), "node/0.1.0")

	// The same with the package, as npm lays it out.
	run(t, "../node", nil, "npm", "pack", "--silent", "--offline", "--pack-destination", dir)
	run(t, dir, nil, "sh", "-c", `rm -r ledgerd && sed -i.bak 's#\./ledgerd#ledgerd-plugin#' plugin.js ledgerd-plugin-* &&
		sed -i.bak 's#\.\./ledgerd#ledgerd-plugin#' test/* && mkdir -p ../node_modules/ledgerd-plugin &&
		tar -xzf *.tgz --strip-components 1 -C ../node_modules/ledgerd-plugin &&
		mv node_modules ../node_modules/ledgerd-plugin/ && node --test`)
	startsAs(t, dir, "node/0.1.0")
}

// startsAs starts the program in a folder, by ledgerd and by hand. Its description names the SDK.
func startsAs(t *testing.T, dir, sdk string) {
	t.Helper()
	p, err := pluginproc.Start(t.Context(), pluginproc.Spec{Path: filepath.Join(dir, "ledgerd-plugin-word-count")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if d, err := p.Describe(t.Context(), &wire.DescribeRequest{}); err != nil || d.Name != "word-count" ||
		d.Sdk != sdk {
		t.Error(d, err)
	}
	help := exec.Command("./ledgerd-plugin-word-count")
	help.Dir = dir
	if out, err := help.CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "word-count 0.1.0 is a plugin") {
		t.Errorf("by hand: %v %s", err, out)
	}
}

// TestPython builds the program as the README tells, and runs what its author would.
func TestPython(t *testing.T) {
	must.OK(t, pythontest.Find())
	dir := made(t, "word-count", "python", "", "")
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	must.OK(t, err)
	build := regexp.MustCompile(`(?m)^ +(python3 -m zipapp .*)$`).FindSubmatch(readme)
	if build == nil {
		t.Fatal("README.md does not tell how to make one file")
	}
	if out := run(t, dir, nil, "python3", "-m", "unittest"); !strings.Contains(out, "Ran 2 tests") {
		t.Error(out)
	}
	run(t, dir, nil, "sh", "-c", string(build[1]))
	startsAs(t, dir, "python/0.1.0")
}

func TestScript(t *testing.T) {
	if out := run(t, made(t, "word-count", "sh", "", ""), nil, "sh", "test.sh"); out != "ok\n" {
		t.Error(out)
	}
}

// A folder may have a name that means something in a config, a command or the template.
func TestScriptInAnOddFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `samples{a}"\b`)
	if _, err := template.Write(dir, "words", "sh", "", ""); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "ledgerd.toml"))
	if err != nil || !strings.Contains(string(text), `/samples{{a}}\"\\b/words.sh", "{key}"]`) {
		t.Errorf("%s %v", text, err)
	}
	dir = filepath.Join(t.TempDir(), "words")
	must.Do(t)(template.Write(dir, "words", "go", "", "/src/samples/ledgerd"))
	if text, err = os.ReadFile(dir + "/go.mod"); err != nil || !strings.Contains(string(text), `"/src/samples/ledgerd"`) {
		t.Errorf("%s %v", text, err)
	}
}

// Existing files are left alone, and a begun folder is removed.
func TestWriteRefuses(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "mine")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ dir, name, language string }{
		{dir, "words", "go"}, {mine, "words", "go"}, {dir + "/new", "Words", "go"}, {dir + "/new", "../words", "go"},
		{dir + "/new", "", "sh"}, {dir + "/new", "test", "sh"}, {dir + "/new", "words", "cobol"}, {dir + "/none/new", "words",
			"go"},
	} {
		if files, err := template.Write(test.dir, test.name, test.language, "", ""); err == nil {
			t.Errorf("%v: wrote %v", test, files)
		} else if exists := test.language == "go" && test.name == "words" &&
			!strings.HasSuffix(test.dir, "new"); exists != errors.Is(err, fs.ErrExist) {
			t.Errorf("%v: %v", test, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"mine"}, names); diff != "" {
		t.Error("-want +there\n" + diff)
	}
}
