package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/must"
)

// If a plugin does not start to check its config, the error has its name and its path.
func TestValidateNames(t *testing.T) {
	a := New(nil, Program{}, nil, new(bytes.Buffer), new(bytes.Buffer))
	a.Dirs = []string{t.TempDir()}
	file := filepath.Join(a.Dirs[0], "ledgerd-plugin-odd")
	must.OK(t, os.WriteFile(file, []byte("#!/bin/sh\nexit 3\n"), 0o755))
	err := a.validate(t.Context(), "odd", nil)
	if err == nil || !strings.HasPrefix(err.Error(), "plugin odd ("+file+") did not start") {
		t.Error(err)
	}
}

// TestCommandLogRedacts: the log of a command hides the passwords of URLs, as that of a daemon does.
func TestCommandLogRedacts(t *testing.T) {
	var out bytes.Buffer
	New(nil, Program{}, nil, nil, &out).commandLogger().Warn("slow", "url", "https://ann:hunter2@a.example/")
	if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), "https://ann:***@a.example/") {
		t.Error(out.String())
	}
}

// TestReloadSameFile: the config is read again from the file that was found the first time, even if that file is gone
// and another one would be found now.
func TestReloadSameFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LEDGERD_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", dir)
	file := filepath.Join(dir, "ledgerd", "ledgerd.toml")
	must.OK(t, os.Mkdir(filepath.Dir(file), 0o700))
	must.OK(t, os.WriteFile(file, []byte("lease = \"2m\"\n"), 0o600))
	a := New(nil, Program{}, nil, new(bytes.Buffer), new(bytes.Buffer))
	must.OK(t, a.Configure(new(pflag.FlagSet)))
	must.OK(t, os.Rename(file, file+".old"))
	if c, err := a.LoadConfig(); err == nil || !strings.HasPrefix(err.Error(), file+": cannot be read") {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv("LEDGERD_CONFIG", file+".old")
	if c, err := a.LoadConfig(); err == nil {
		t.Errorf("another file was read: %s", c.File)
	}
}
