package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// programs makes a folder with programs of these names.
func programs(t *testing.T, dir string, names ...string) string {
	t.Helper()
	must.OK(t, os.MkdirAll(dir, 0o755))
	for _, name := range names {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	return dir
}

func TestBin(t *testing.T) {
	all := []string{"initdb", "pg_ctl", "postgres"}
	root, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
	given := programs(t, root+"/given", all...)
	clients := programs(t, root+"/clients", "pg_ctl")
	linked := programs(t, root+"/linked/bin", all...)
	inPath := programs(t, root+"/path")
	must.OK(t, os.Symlink(linked+"/pg_ctl", inPath+"/pg_ctl"))
	programs(t, root+"/lib/9/bin", all...)
	newest := programs(t, root+"/lib/15/bin", all...)
	programs(t, root+"/lib/18/bin", "pg_ctl")

	defer func(before []string) { installed = before }(installed)
	for _, c := range []struct {
		name, env, path, lib string
		want, wantErr        string
	}{
		{"named folder first", given, inPath, root + "/lib/*/bin", given, ""},
		{"then PATH, through links", "", inPath, root + "/lib/*/bin", linked, ""},
		{"then the newest complete one", "", root, root + "/lib/*/bin", newest, ""},
		{"pg_ctl alone is no server", "", clients, root + "/lib/*/bin", newest, ""},
		{"named folder must be complete", clients, inPath, root + "/lib/*/bin", "", BinEnv},
		{"none", "", root, root + "/none/*", "", "apt-get install postgresql"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(BinEnv, c.env)
			t.Setenv("PATH", c.path)
			installed = []string{c.lib}
			got, err := Bin()
			if got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
			switch {
			case c.wantErr == "" && err != nil:
				t.Errorf("error %v", err)
			case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
				t.Errorf("error %v does not mention %q", err, c.wantErr)
			}
			if c.name == "none" && !errors.Is(err, ErrMissing) {
				t.Errorf("error %v, want ErrMissing", err)
			}
		})
	}
}
