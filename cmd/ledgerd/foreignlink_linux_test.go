package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// Files that wait to be worked are replaced by links to secrets, and a folder by a link to the folder of a secret. If
// another user has made the links (only root can test that), the items fail, and the secrets appear in no output, log,
// picture or ledger. Links of the daemon's own user are followed.
func TestForeignLink(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		const canary = "canary-7f3a"
		secrets, inbox, thumbs := t.TempDir(), t.TempDir(), t.TempDir()
		png, err := base64.StdEncoding.DecodeString(
			"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
		if err = errors.Join(err, os.Mkdir(filepath.Join(inbox, "sub"), 0o755)); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"a.csv": "id\n" + canary + "\n", "a.png": string(png), "b.csv": canary +
			",x\n" + canary + "\n"} {
			own := filepath.Join(inbox, name)
			if name == "b.csv" {
				own = filepath.Join(inbox, "sub", name)
			}
			must.OK(t, errors.Join(os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600),
				os.WriteFile(own, []byte("id\n1\n"), 0o644)))
		}
		m.run(0, "add", "filecsv", inbox, "--set", "max_bad_rows=9")
		m.run(0, "add", "photo", inbox)
		for name, to := range map[string]string{"a.csv": "a.csv", "a.png": "a.png", "sub": ""} {
			path := filepath.Join(inbox, name)
			must.OK(t, errors.Join(os.RemoveAll(path), os.Symlink(filepath.Join(secrets, to), path)))
			if os.Getuid() == 0 {
				must.OK(t, os.Lchown(path, 65534, -1))
			}
		}
		exit, code := 0, ""
		if os.Getuid() == 0 {
			exit, code = failure.ExitUnfinished, "foreign_link"
		}
		var told strings.Builder
		for _, args := range [][]string{{"filecsv"}, {"photo", "--with", "out_dir=" + thumbs}} {
			p := m.start(append([]string{"work", "--drain", "--verbose", "--kind"}, args...)...)
			if got := m.exit(p); got != exit {
				t.Errorf("%s: exit %d, want %d\n%s", args[0], got, exit, p.stderr.String())
			}
			told.WriteString(p.stdout.String() + p.stderr.String())
		}
		for _, name := range []string{"a.csv", "sub/b.csv", "a.png"} {
			shown := m.run(0, "show", filepath.Join(inbox, name), "-o", "json")
			told.WriteString(shown)
			var it struct{ Item struct{ Code string } }
			if err := json.Unmarshal([]byte(shown), &it); err != nil || it.Item.Code != code {
				t.Errorf("%s: %v, %s", name, err, shown)
			}
		}
		text, err := os.ReadFile(strings.TrimPrefix(m.db, "sqlite:"))
		must.OK(t, err)
		told.Write(text)
		made, err := os.ReadDir(thumbs)
		must.OK(t, err)
		if read := strings.Contains(told.String(), canary); code != "" && (read || len(made) > 0 ||
			strings.Contains(told.String(), secrets)) {
			t.Errorf("a secret was read: %v, %v\n%q", read, made, told.String())
		}
	})
}
