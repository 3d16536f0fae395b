package sdk

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
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
	closed *bool
}

func (c *shoutConfig) Open(context.Context) error {
	if c.Suffix == "closed" {
		return errors.New("no door")
	}
	c.closed = new(bool)
	return nil
}

func (c *shoutConfig) Close() error {
	if *c.closed {
		return errors.New("closed twice")
	}
	*c.closed = true
	return nil
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
	p := New("shout", "0.2.0", func(_ context.Context, cfg *shoutConfig, it Item[shoutIn]) (shoutOut, error) {
		switch filepath.Base(it.Key) {
		case "missing.txt":
			return shoutOut{}, Permanent(Code("missing", errBoom))
		case "empty.txt":
			return shoutOut{}, Skip("empty")
		case "feed.txt":
			it.Progress(1, 2, "entries")
			it.Progress(2, 0, "entries")
			return shoutOut{}, it.Emit(Child{Kind: "article", Key: "one", Payload: map[string]int{"n": 1}})
		}
		return shoutOut{strings.ToUpper(strings.Repeat(filepath.Base(it.Payload.Path), it.Payload.Times)) + cfg.Suffix}, nil
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
		{"run", []string{"run", "--set", "times=2", "/a.txt", "--with=suffix=?", "/b.txt", "/empty.txt"}, 0},
		{"run-failed", []string{"run", "/missing.txt", "/feed.txt"}, 3},
		{"run-nothing", []string{"run"}, 2},
		{"run-flag", []string{"run", "--sett", "a=b", "/a"}, 2},
		{"run-field", []string{"run", "--set", "tims=2", "/a"}, 2},
		{"run-value", []string{"run", "--set", "times=4", "--set", "mode=mute", "/a"}, 2},
		{"run-config", []string{"run", "--with", "sufix=x", "/a"}, 2},
		{"run-open", []string{"run", "--with", "suffix=closed", "/a"}, 2},
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

var times = regexp.MustCompile(`time=[^ ]+`)

func golden(t *testing.T, name, got string) {
	t.Helper()
	got = times.ReplaceAllString(got, "time=T")
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

// A plugin without an input field takes payloads; one with lines takes text as it is.
func TestRunInputs(t *testing.T) {
	type plain struct {
		N int `json:"n"`
	}
	type text struct {
		Text string `json:"text" input:"line"`
	}
	numbers := New("numbers", "0.1.0", func(_ context.Context, _ *struct{}, it Item[plain]) (string, error) {
		return it.Key, nil
	})
	lines := NewBatch("lines", "0.1.0", func(_ context.Context, _ *struct{}, b *Batch[text, int]) error {
		for i, it := range b.Items {
			b.Settle(i, len(it.Payload.Text), nil)
		}
		return nil
	})
	type keyed struct {
		Key string `json:"key" secret:"true"`
	}
	keys := New("keys", "0.1.0", func(_ context.Context, c *keyed, _ Item[plain]) (string, error) { return c.Key, nil })
	file := filepath.Join(t.TempDir(), "key")
	must.OK(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	tests := []struct {
		plugin *Plugin
		args   []string
		want   string
	}{
		{keys, []string{"run", "--with", "key=file:" + file, "{}"},
			`{"type":"item","key":"1","outcome":"done","output":"s3cret"}` + "\n"},
		{numbers, []string{"run", `{"n":1}`, `{}`}, `{"type":"item","key":"1","outcome":"done","output":"1"}` + "\n" +
			`{"type":"item","key":"2","outcome":"done","output":"2"}` + "\n"},
		{lines, []string{"run", " two ", "three"}, `{"type":"item","key":"two","outcome":"done","output":3}` + "\n" +
			`{"type":"item","key":"three","outcome":"done","output":5}` + "\n"},
	}
	for _, test := range tests {
		var out, errs strings.Builder
		if exit := command(test.plugin, test.args, &out, &errs); exit != 0 {
			t.Errorf("%q exits with %d: %s", test.args, exit, errs.String())
		}
		if diff := cmp.Diff(test.want, out.String()); diff != "" {
			t.Error(diff)
		}
	}
}
