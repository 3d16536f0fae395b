package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/ledgerd/ledgerd/internal/must"
)

// FuzzLoad: a file is either refused, or it is TOML and is read completely, with a place for every key. The lines of
// problems exist, and a refused Config can still be printed and compared.
func FuzzLoad(f *testing.F) {
	f.Add(whole)
	f.Add(Example)
	archive, err := txtar.ParseFile("testdata/mistakes.txtar")
	must.OK(f, err)
	for _, file := range archive.Files {
		f.Add(string(file.Data))
	}
	dir, w := f.TempDir(), world(f)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, fmt.Sprintf("%d.toml", os.Getpid()))
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		c, err := Load(Options{Path: path})
		var values map[string]any
		isTOML := toml.Unmarshal([]byte(text), &values)
		if isTOML != nil && err == nil {
			t.Fatalf("taken, though it is no TOML: %v", isTOML)
		}
		if isTOML == nil {
			everyKeyHasAPlace(t, c.doc, "", values)
		}
		err = c.Check(w, err)
		lines := 1 + strings.Count(text, "\n")
		if bad, ok := err.(*Error); ok {
			for _, p := range bad.Problems {
				if p.Line < 0 || p.Line > lines || p.Line > 0 && p.Column < 1 || p.Message == "" {
					t.Errorf("%+v", p)
				}
			}
		}
		if err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
		c.Settings(w)
		if changes := Diff(c, c); len(changes) > 0 {
			t.Error(changes)
		}
	})
}

func everyKeyHasAPlace(t *testing.T, d *document, path string, value any) {
	if _, known := d.places[path]; !known && path != "" {
		t.Errorf("%s has no place", path)
	}
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			everyKeyHasAPlace(t, d, joinPath(path, name), inner)
		}
	case []any:
		for i, inner := range v {
			if table, ok := inner.(map[string]any); ok && len(table) > 0 {
				everyKeyHasAPlace(t, d, fmt.Sprintf("%s[%d]", path, i), inner)
			}
		}
	}
}

// parentPath undoes joinPath, whatever the key is.
func TestParentPath(t *testing.T) {
	for _, key := range []string{"b", "b.c", "b[0]", `b\`, `b.\`, `b."\"`, `"`, ""} {
		if path := joinPath("a", key); parentPath(path) != "a" || parentPath(path+"[0]") != path {
			t.Errorf("%s: %q, %q", path, parentPath(path), parentPath(path+"[0]"))
		}
	}
}
