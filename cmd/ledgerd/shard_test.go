package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A worker of one shard ends when its own is done, and says nothing of the others.
func TestDrainOfOneShard(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		effects := filepath.Join(t.TempDir(), "effects")
		args := []string{"add", "effect"}
		for i := range 40 {
			args = append(args, fmt.Sprint("item ", i))
		}
		m.run(exitOK, args...)
		work := func(shard string) string {
			return m.run(exitOK, "work", "--drain", "--kind", "effect", "--with", "path="+effects, "--shard", shard)
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

// A run of one shard is about its own inputs: those of the others are counted apart, are not waited for, and are
// not in the way of exit 0.
func TestRunOfOneShard(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		effects := filepath.Join(t.TempDir(), "effects")
		run := []string{"run", "effect", "--with", "path=" + effects}
		for i := range 40 {
			run = append(run, fmt.Sprint("item ", i))
		}
		var sum summary
		if err := json.Unmarshal([]byte(m.run(exitOK, append(run, "--shard", "0/2", "-o", "json")...)), &sum); err != nil {
			t.Fatal(err)
		}
		in := sum.Inputs
		if in.Total == 0 || in.Done != in.Total || in.OtherShards != 40-in.Total || in.Waiting+in.Held > 0 {
			t.Errorf("%+v", in)
		}
		if n := len(lines(t, effects, "done")); int64(n) != in.Total {
			t.Errorf("%d are done, of %d in the shard", n, in.Total)
		}
		want := fmt.Sprint("done ", in.OtherShards, "   of other shards ", in.Total, "   ")
		if out := m.run(exitOK, append(run, "--shard", "1/2")...); !strings.Contains(out, want) || strings.Contains(out, "left") {
			t.Errorf("%q, not in %s", want, out)
		}
		if n := len(lines(t, effects, "done")); n != 40 {
			t.Errorf("%d of 40 are done by both", n)
		}
	})
}
