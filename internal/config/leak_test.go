package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
)

const withSecrets = `# a file with secrets
db = "postgres://me:hunter2@host/work"
lease = "1m"

[kinds.mail]
timeout = "1m"

[kinds.mail.with]
host = "h"
smtp.password = "hunter2hunter2"

[kinds.urlcheck]
with = { allow_private = true, token = "hunter2" }

[[source]]
name = "users"
type = "query"
kind = "mail"
query = "SELECT 1"
query_db = "postgres://me:hunter2@other/work"

[[source]]
name = "links"
type = "list"
kind = "urlcheck"
url = "https://lists.example/all?k=hunter2"
`

// TestNoSecretIsShown: after any single typing mistake in a file, no message, no setting and no difference contains a
// secret.
func TestNoSecretIsShown(t *testing.T) {
	dir, w := t.TempDir(), world(t)
	whole := fine(Load(Options{Path: write(t, withSecrets)}))
	// Places where a mistake neither cuts the secret nor makes it a part of a user name or a path.
	var places []int
	for i := range len(withSecrets) {
		if from := strings.LastIndex(withSecrets[:i], "hunter2"); (from < 0 || i-from >= len("hunter2")) &&
			!strings.HasPrefix(withSecrets[i:], ":hunter2") &&
			!strings.HasPrefix(withSecrets[i:], "?k=") {
			places = append(places, i)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.SampledFrom(places).Draw(t, "at")
		text := withSecrets
		switch rapid.SampledFrom([]string{"insert", "delete", "line gone", "line twice"}).Draw(t, "slip") {
		case "insert":
			text = text[:at] + rapid.SampledFrom(strings.Split("\" ' = [ ] { } # . , \\ \n x 1 -", " ")).Draw(t, "what") +
				text[at:]
		case "delete":
			if !strings.HasPrefix(text[at:], "hunter2") {
				text = text[:at] + text[at+1:]
			}
		default:
			lines := strings.SplitAfter(text, "\n")
			i := at % len(lines)
			if at%2 == 0 {
				lines = slices.Delete(lines, i, i+1)
			} else {
				lines = slices.Insert(lines, i, lines[i])
			}
			text = strings.Join(lines, "")
		}
		path := filepath.Join(dir, "ledgerd.toml")
		must.OK(t, os.WriteFile(path, []byte(text), 0o644))
		c, err := loadAll(w, path, text)
		shown := fmt.Sprintln(err)
		for _, p := range c.Warnings {
			shown += p.String() + "\n"
		}
		for _, s := range c.Settings(w) {
			shown += fmt.Sprintln(s.Key, s.Value)
		}
		for _, change := range Diff(whole, c) {
			shown += change.Key + "\n"
		}
		if strings.Contains(shown, "hunter2") {
			t.Fatalf("%s\nshows the secret:\n%s", text, shown)
		}
	})
}

// TestSecretsOfCommandsAndLists: secrets in a command or in the URL of a list are not shown either.
func TestSecretsOfCommandsAndLists(t *testing.T) {
	const text = `[kinds.conv]
plugin = "exec"
with.command = ["conv", "--token=hunter2", "--password", "hunter2", "-H", "X-Api-Key: hunter2", "{key}"]
set = { login = { password = "hunter2" }, at = [{ api_token = "hunter2", port = 25 }] }

[kinds.pay]
set = { pin = "hunter2", to = "ann" }

[kinds.sick]
set = { pin = "hunter2" }

[kinds.away]
plugin = "nowhere"
set = { pin = "hunter2" }

[kinds.people]
input = "line"
set = { to = "ann" }

[plugins.thumb]
command = ["thumb", "--fast", "--secret=hunter2"]

[[source]]
name = "links"
type = "list"
kind = "urlcheck"
url = "https://hunter2@lists.example/all?k=hunter2#hunter2"
set = { api_token = "hunter2" }
`
	c := fine(Load(Options{Path: write(t, text)}))
	other := fine(Load(Options{Path: write(t, strings.ReplaceAll(text, "hunter2", "hunter2-2"))}))
	var shown strings.Builder
	w := world(t)
	known := w.Describe
	w.Describe = func(name string) (*About, error) {
		switch name {
		case "sick":
			return nil, errors.New("does not start")
		case "exec":
			return &About{Payload: schema(t, ""), Config: schema(t, "")}, nil
		case "pay":
			return &About{Payload: schema(t, `"pin":{"type":"string","writeOnly":true},"to":{"type":"string"}`),
				Config: schema(t, "")}, nil
		}
		return known(name)
	}
	for _, s := range c.Settings(w) {
		fmt.Fprintln(&shown, s.Key, s.Value)
	}
	for _, change := range Diff(c, other) {
		fmt.Fprintln(&shown, change)
	}
	if strings.Contains(shown.String(), "hunter2") {
		t.Error(shown.String())
	}
	for _, want := range []string{"source[0].url https://***@lists.example/all?***#***\n",
		"plugins.thumb.command [thumb --fast --secret=***]\n", "kinds.pay.set.pin (secret)\n", "kinds.pay.set.to ann\n", "kinds.people.set.to ann\n",
		"kinds.conv.set.login.password (secret)\n", "kinds.conv.set.at [map[api_token:(secret) port:25]]\n"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("%q is not in\n%s", want, shown.String())
		}
	}
}

// TestSecretInFile: the warning about a secret advises only keys that there are.
func TestSecretInFile(t *testing.T) {
	text := withSecrets + "[source.set]\napi_token = \"hunter2\"\n[kinds.pay.set]\npassword = \"hunter2\"\n" +
		"[kinds.pay.with.env]\nAPI_TOKEN = \"hunter2\"\n[plugins.pay]\nsource = \"https://u:hunter2@h/p\"\n"
	path := write(t, strings.Replace(text, "https://lists", "https://u:hunter2@lists", 1))
	must.OK(t, os.Chmod(path, 0o644))
	c, _ := Load(Options{Path: path}) // the plugin has no checksum
	for key, advice := range map[string]string{" db:": " db_file", "query_db:": " query_db_file", "source[1].url:": "",
		"urlcheck.with.token:": " token_file", "pay.with.env.API_TOKEN:": "", "plugins.pay.source:": "",
		"kinds.pay.set.password:": "", "source[1].set.api_token:": ""} {
		i := slices.IndexFunc(c.Warnings, func(w Problem) bool { return strings.Contains(w.String(), key) })
		if i < 0 {
			t.Errorf("no warning about %s in %v", key, c.Warnings)
		} else if _, got, _ := strings.Cut(c.Warnings[i].String(), "of its own:"); got != advice {
			t.Errorf("%s: %q, want %q", key, got, advice)
		}
	}
}

// TestReadableFile: a file with a secret that the configuration names is warned about if everybody can read it.
func TestReadableFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		must.OK(t, os.Chmod(path, mode))
		return path
	}
	url := file("url", "postgres://me:hunter2@h/x\n", 0o644)
	open := file("open", "hunter22", 0o644)
	file("closed", "hunter22", 0o640)
	file("none", "postgres://h/x\n", 0o644)
	for _, c := range []struct {
		text, env string
		want      string
	}{
		{text: `db_file = "url"`, want: url},
		{env: "LEDGERD_DB_FILE=" + url, want: url},
		{text: `db_file = "none"`},
		{text: "[[source]]\nname = \"a\"\ntype = \"query\"\nkind = \"mail\"\nquery = \"x\"\nquery_db_file = \"url\"", want: url},
		{text: `kinds.mail.with = { smtp.password = "file:open" }`, want: open},
		{text: `kinds.mail.with = { smtp.password_file = "open" }`, want: open},
		{text: `kinds.mail.with = { smtp.password_file = "closed" }`},
	} {
		got, err := Load(Options{Path: file("ledgerd.toml", c.text, 0o600), Environ: []string{c.env}})
		must.OK(t, err)
		if len(got.Warnings) > 1 || (c.want != "") != (len(got.Warnings) == 1) ||
			c.want != "" && (got.Warnings[0].Hint != "chmod o-r "+c.want || !strings.Contains(got.Warnings[0].Message, c.want)) {
			t.Errorf("%s%s: %v", c.text, c.env, got.Warnings)
		}
	}
	for path, want := range map[string]bool{"/run/secrets/db": true, "/var/run/secrets/a": true, "/run/secretsdb": false} {
		if got := isMounted(path); got != want {
			t.Errorf("%s is mounted by a container runtime: %t", path, got)
		}
	}
}
