package clientgen

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/must"
)

const clients = "../../../clients/"

// TestCurrent: the clients in the tree are those of the API as it is.
func TestCurrent(t *testing.T) {
	files, err := Files()
	must.OK(t, err)
	for path, want := range files {
		got, err := os.ReadFile(clients + path)
		must.OK(t, err)
		if diff := cmp.Diff(string(got), want); diff != "" {
			t.Errorf("%s: run make generate\n%s", path, diff)
		}
	}
}

// check runs a program that must find nothing, and returns what it printed.
func check(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "MYPYPATH="+clients+"python")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

// TestPythonTypes: the client and a program that uses it pass mypy, for the oldest Python that is promised.
func TestPythonTypes(t *testing.T) {
	if _, err := exec.LookPath("mypy"); err != nil {
		t.Fatal("mypy is needed: apt-get install mypy")
	}
	cache, err := os.UserCacheDir() // the types of Python's own library are read once on a machine
	if err != nil {
		t.Fatal(err)
	}
	check(t, "mypy", "--strict", "--python-version", "3.9", "--cache-dir", cache+"/mypy", clients+"python/ledgerd.py",
		"testdata/use.py")
}

// TestPythonPackage: the package builds without a network, and is the file.
func TestPythonPackage(t *testing.T) {
	check(t, "python3", "-B", "-c", `import sys
sys.path.insert(0, sys.argv[1])
import build_ledgerd
sys.path.insert(0, sys.argv[2] + "/" + build_ledgerd.build_wheel(sys.argv[2]))
import ledgerd
assert ledgerd.Client("http://a/b")._base == "/b/api/v1" and ".whl" in ledgerd.__file__, ledgerd.__file__
`, clients+"python", t.TempDir())
}

// packages is the folder with what tests need from npm.
func packages(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata/node_modules")
	if err == nil {
		_, err = os.Stat(dir + "/.package-lock.json")
	}
	if err != nil {
		t.Fatal("packages for Node are needed: run make node-packages", err)
	}
	return dir
}

// TestDescriptionLints: a checker of descriptions, with its recommended rules, finds nothing, not even to warn of.
func TestDescriptionLints(t *testing.T) {
	text, err := api.OpenAPI("")
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "openapi.json")
	must.OK(t, os.WriteFile(path, text, 0o600))
	t.Setenv("REDOCLY_TELEMETRY", "off")
	t.Setenv("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true")
	out := check(t, "node", packages(t)+"/@redocly/cli/bin/cli.js", "lint", "--format", "json", path)
	begin := strings.IndexByte(out, '{') // notices about this version of Node stand before it
	var found struct {
		Totals   struct{ Errors, Warnings *int }
		Problems []any
	}
	if err := json.NewDecoder(strings.NewReader(out[max(begin, 0):])).Decode(&found); err != nil {
		t.Fatal(err, out)
	}
	if n := found.Totals; n.Errors == nil || n.Warnings == nil || *n.Errors+*n.Warnings > 0 {
		t.Errorf("%+v", found.Problems)
	}
}

// TestTypeScriptTypes: a program that uses the client passes the compiler, and the JavaScript has what is declared.
func TestTypeScriptTypes(t *testing.T) {
	packages, dir := packages(t), t.TempDir()
	for to, from := range map[string]string{"use.mts": "testdata/use.mts", "conforms.mts": "testdata/conforms.mts",
		"package.json": clients + "typescript/package.json", "ledgerd.js": clients + "typescript/ledgerd.js",
		"ledgerd.d.ts": clients + "typescript/ledgerd.d.ts", "impl.js": clients + "typescript/ledgerd.js"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o600)
		}
		must.OK(t, err)
	}
	tsc := []string{packages + "/typescript/lib/tsc.js", "--noEmit", "--target", "es2022", "--module", "nodenext",
		"--typeRoots", packages + "/@types", "--types", "node"}
	check(t, "node", append(tsc, "--allowJs", "--skipLibCheck", filepath.Join(dir, "conforms.mts"))...)
	check(t, "node", append(tsc, "--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess",
		"--noUnusedLocals", filepath.Join(dir, "use.mts"))...)
}
