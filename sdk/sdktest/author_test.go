package sdktest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A plugin's author requires one module, and gets nothing of what only ledgerd needs.
func TestAuthorsModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(filepath.Join(root, "examples/hello/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	test, err := os.ReadFile(filepath.Join(root, "examples/hello/main_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	const ours = "github.com/ledgerd/ledgerd"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/hello\n\ngo 1.26.0\n\nrequire " + ours + " v0.0.0\n\nreplace " + ours + " => " + root +
			"\n",
		"go.sum": string(sums), "main.go": string(program), "main_test.go": string(test),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		// All that there is was fetched for this module.
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		return string(out)
	}
	packages := strings.Fields(run("list", "-deps", "-test", "-f", "{{.ImportPath}}", "./..."))
	if len(packages) < 100 {
		t.Fatalf("only %d packages: this test does not see what it should", len(packages))
	}
	for _, foreign := range []string{
		"github.com/jackc/", "modernc.org/", "github.com/pressly/", "github.com/spf13/", "github.com/prometheus/",
		"github.com/rogpeppe/",
		"github.com/emersion/", "github.com/wneessen/", "database/sql", "net/http/httptest", ours + "/ledger", ours +
			"/plugins", ours + "/schema",
	} {
		for _, p := range packages {
			if strings.HasPrefix(p, foreign) {
				t.Errorf("an author's build has %s", p)
			}
		}
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal([]byte(run("mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if !r.Indirect && r.Path != ours {
			t.Errorf("an author's go.mod requires %s", r.Path)
		}
	}
}
