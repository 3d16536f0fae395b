package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// A plugin that does not start when it is to look at its config is named as one that cannot be described is.
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
