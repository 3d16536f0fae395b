package sdk

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

var update = flag.Bool("update", false, "write the golden files")

type shoutConfig struct {
	Suffix string `json:"suffix" default:"!" doc:"appended | to everything"`
	Token  string `json:"token" secret:"true" doc:"for the other side"`
}

type shoutIn struct {
	Path  string        `json:"path" input:"file" doc:"what to read"`
	Times int           `json:"times" default:"1" schema:"min=1,max=3" doc:"how often"`
	Wait  time.Duration `json:"wait" default:"0"`
	Mode  string        `json:"mode" default:"loud" schema:"enum=loud|silent"`
	Mail  inner         `json:"mail"`
	Join  string        `json:"join" default:"a|b" doc:"between\nthe lines"`
}

type shoutOut struct {
	Text string `json:"text" doc:"what was shouted"`
}

func shout() *Plugin {
	p := New("shout", "0.2.0", func(_ context.Context, _ *shoutConfig, _ Item[shoutIn]) (shoutOut, error) {
		return shoutOut{}, nil
	})
	p.Doc = "Shouts names of files.\n\nIt does nothing else."
	p.Match, p.Emits = []string{"*.txt", "*.md"}, []string{"article"}
	p.OnLost, p.Concurrency, p.Timeout, p.MaxFailures, p.Previous = OnLostDoubt, 4, time.Minute, 3, true
	p.Examples = []Example{
		{Doc: "twice", Payload: shoutIn{Path: "/a.txt", Times: 2}, Output: shoutOut{"A.TXTA.TXT!"}},
		{Payload: map[string]any{"path": "/b.txt"}},
	}
	return p
}

func TestCommands(t *testing.T) {
	tests := []struct {
		golden string
		args   []string
		exit   int
	}{
		{"hand", nil, 1},
		{"hand", []string{"serve"}, 1},
		{"describe", []string{"describe"}, 0},
		{"doc", []string{"doc"}, 0},
	}
	for _, test := range tests {
		var out, errs strings.Builder
		exit := command(shout(), test.args, &out, &errs)
		if exit != test.exit {
			t.Errorf("%q exits with %d, want %d", test.args, exit, test.exit)
		}
		golden(t, test.golden, out.String()+"--- stderr\n"+errs.String())
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		must.OK(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must.OK(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}
