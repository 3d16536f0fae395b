package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// A worker of one shard ends when the items of its shard are done, and prints nothing about the others.
func TestDrainOfOneShard(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		effects := filepath.Join(t.TempDir(), "effects")
		args := []string{"add", "effect"}
		for i := range 40 {
			args = append(args, fmt.Sprint("item ", i))
		}
		m.run(failure.ExitOK, args...)
		work := func(shard string) string {
			return m.run(failure.ExitOK, "work", "--drain", "--kind", "effect", "--with", "path="+effects, "--shard", shard)
		}
		if out := work("0/2"); strings.Contains(out, "left") {
			t.Error(out)
		}
		if n := len(lines(t, effects, "done")); n == 0 || n == 40 {
			t.Errorf("%d of 40 are done by one of two shards", n)
		}
		work("1/2")
		if n := len(lines(t, effects, "done")); n != 40 {
			t.Errorf("%d of 40 are done by both", n)
		}
	})
}
