package version

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// above finds the clone around a program. Other modules, and ledgerd in the module cache, are no clones.
func TestAbove(t *testing.T) {
	t.Parallel()
	const mod = "module github.com/ledgerd/ledgerd\n\ngo 1.26.0\n"
	for _, tt := range []struct {
		name, mod string
		git       bool
		found     bool
	}{
		{"clone", mod, true, true},
		{"cache of modules", mod, false, false},
		{"module of a plugin", "module example.com/words\n\nrequire github.com/ledgerd/ledgerd v1.0.0\n", true, false},
		{"module below ours", "module github.com/ledgerd/ledgerd/bench\n", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			bin := filepath.Join(root, "dist", "bin")
			err := errors.Join(os.MkdirAll(bin, 0o700), os.WriteFile(filepath.Join(root, "go.mod"), []byte(tt.mod), 0o600))
			if tt.git { // a file in a worktree, else a folder
				err = errors.Join(err, os.WriteFile(filepath.Join(root, ".git"), nil, 0o600))
			}
			must.OK(t, err)
			want := ""
			if tt.found {
				want = root
			}
			if got := above(bin); got != want {
				t.Errorf("above(%q) = %q, want %q", bin, got, want)
			}
		})
	}
}
