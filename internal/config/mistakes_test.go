package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

var update = flag.Bool("update", false, "write the expected output anew")

// schema returns a schema as package sdk makes it.
func schema(t testing.TB, properties string, required ...string) *settings.Schema {
	t.Helper()
	s, err := settings.Compile(fmt.Appendf(nil,
		`{"type":"object","additionalProperties":{"not":{}},"required":[%s],"properties":{%s}}`, strings.Join(required,
			","), properties))
	must.OK(t, err)
	return s
}

// world has three plugins. One of them does not start.
func world(t testing.TB) World {
	plugins := map[string]*About{
		"urlcheck": {Input: "url",
			Payload: schema(t,
				`"url":{"type":"string"},"accept":{"type":"array","items":{"type":"integer","minimum":100}},"method":{"type":"string","enum":["GET","HEAD"]}`, `"url"`),
			Config: schema(t, `"allow_private":{"type":"boolean"},"token":{"type":"string","writeOnly":true}`)},
		"mail": {Input: "line",
			Payload: schema(t, `"to":{"type":"string"}`, `"to"`),
			Config: schema(t,
				`"host":{"type":"string"},"smtp":{"type":"object","additionalProperties":{"not":{}},"properties":{"port":{"type":"integer"},"password":{"type":"string","writeOnly":true,"minLength":8}}}`, `"host"`)},
	}
	return World{Plugins: []string{"broken", "mail", "urlcheck"}, Kinds: map[string]string{"article": ""},
		Describe: func(name string) (*About, error) {
			if name == "broken" {
				return nil, errors.New("plugin broken did not start")
			}
			if about := plugins[name]; about != nil {
				return about, nil
			}
			return nil, ErrNoPlugin
		}}
}

// loadAll loads a file and checks it against the world, as config check does. Lines "#env NAME=value" of the file are
// the environment.
func loadAll(w World, path, text string) (*Config, error) {
	o := Options{Path: path}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "#env "); ok {
			o.Environ = append(o.Environ, v)
		}
	}
	c, err := Load(o)
	return c, c.Check(w, err)
}

// TestMistakes: every kind of mistake has a message with the place of the key, as in the golden file. No message
// contains the secret "hunter2".
func TestMistakes(t *testing.T) {
	const file = "testdata/mistakes.txtar"
	archive, err := txtar.ParseFile(file)
	must.OK(t, err)
	dir := t.TempDir()
	var cases []txtar.File
	want := map[string]string{}
	for _, f := range archive.Files {
		if name, isWant := strings.CutSuffix(f.Name, ".want"); isWant {
			want[name] = string(f.Data)
		} else {
			cases = append(cases, f)
		}
	}
	var written []txtar.File
	for _, f := range cases {
		t.Run(f.Name, func(t *testing.T) {
			path := filepath.Join(dir, "ledgerd.toml")
			must.OK(t, os.WriteFile(path, f.Data, 0o600))
			c, err := loadAll(world(t), path, string(f.Data))
			var b strings.Builder
			for _, w := range c.Warnings {
				fmt.Fprintln(&b, "warning:", w)
			}
			if err != nil {
				fmt.Fprintln(&b, err)
			}
			got := strings.ReplaceAll(b.String(), dir+"/", "")
			written = append(written, f, txtar.File{Name: f.Name + ".want", Data: []byte(got)})
			if strings.Contains(got, "hunter2") {
				t.Errorf("holds the secret:\n%s", got)
			}
			if got == "" {
				t.Error("no mistake was found")
			}
			if diff := cmp.Diff(want[f.Name], got); diff != "" && !*update {
				t.Error(diff)
			}
		})
	}
	if len(cases) < 40 {
		t.Errorf("%d mistakes, there were more", len(cases))
	}
	if *update {
		must.OK(t, os.WriteFile(file, txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: written}),
			0o644))
	}
}
