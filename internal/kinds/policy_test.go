package kinds

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// TestIntroduceSecrets: the ledger learns which fields of the payload a plugin marks as secret, also of a kind that it
// knew before, and again when the plugin has changed.
func TestIntroduceSecrets(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	must.OK(t, l.SetKind(t.Context(), "ann", ledger.Kind{Name: "mail", MaxFailures: 3}))
	lc := NewLocal(nil)
	for _, c := range []struct {
		schema string
		want   []string
	}{
		{`{"type":"object","properties":{"to":{"type":"string"}}}`, nil},
		{`{"type":"object","properties":{"to":{"type":"string"},"code":{"type":"string","writeOnly":true}}}`, []string{"code"}},
		{`{"type":"object","properties":{"code":{"type":"string"}}}`, nil},
	} {
		schema, err := settings.Compile([]byte(c.schema))
		must.OK(t, err)
		policy, err := l.Kind(t.Context(), "mail")
		must.OK(t, err)
		k := &Kind{Name: "mail", Policy: policy, Known: true, Config: lc.Config.Kind("mail"), Schema: schema,
			Plugin: &Plugin{Description: &pluginhost.Description{Name: "mail", Payload: schema}}}
		must.OK(t, lc.Introduce(t.Context(), l, k))
		if policy, err = l.Kind(t.Context(), "mail"); err != nil || !slices.Equal(policy.Input.Secret, c.want) ||
			policy.MaxFailures != 3 {
			t.Errorf("%s: %+v, %v", c.schema, policy, err)
		}
	}
}

// TestMayBeSecret: settings that may be secrets are not kept.
func TestMayBeSecret(t *testing.T) {
	schema, err := settings.Compile([]byte(`{"type":"object","properties":{"pin":{"type":"string","writeOnly":true}}}`))
	must.OK(t, err)
	for assignment, want := range map[string]bool{"pin=1": true, "pin=file:/etc/pin": false, "url=https://x/": false,
		"url=https://a:hunter2@x/": true, "env.STRIPE_KEY=a": true, `env:={"STRIPE_KEY":"a"}`: true,
		`env:={"LANG":"C"}`: false, `a:={"b":{"api_token":"a"}}`: true, `command:=["x","--password","a"]`: true} {
		if got := mayBeSecret(assignment, schema); got != want {
			t.Errorf("%s: %v", assignment, got)
		}
	}
}

// TestPluginConfigRefusesASecretThatIsNoText: also one of the config file whose schema allows it, beside one of --with.
func TestPluginConfigRefusesASecretThatIsNoText(t *testing.T) {
	schema, err := settings.Compile([]byte(`{"type":"object","properties":{"pin":{"writeOnly":true},` +
		`"token":{"type":"string","writeOnly":true}}}`))
	must.OK(t, err)
	dir := t.TempDir()
	file, token := filepath.Join(dir, "ledgerd.toml"), filepath.Join(dir, "token")
	must.OK(t, os.WriteFile(file, []byte("[kinds.mail.with]\npin = 5\n"), 0o600))
	must.OK(t, os.WriteFile(token, []byte("hunter2"), 0o600))
	lc := NewLocal(nil)
	lc.Config, err = config.Load(config.Options{Path: file})
	must.OK(t, err)
	p := &Plugin{Description: &pluginhost.Description{Name: "mail", Config: schema}}
	_, err = lc.PluginConfig("mail", p, []string{"token=file:" + token})
	if f := failure.Explain(err); f.Exit != failure.ExitUsage || f.Message != "mail: pin: must be text" {
		t.Errorf("%+v", f)
	}
}

// TestPluginErrorHint: the hint names what can be checked: a path, or the name of a command with arguments.
func TestPluginErrorHint(t *testing.T) {
	for want, place := range map[string]pluginhost.Place{
		"try: ledgerd plugin check '/srv/my plugins/a'": {Name: "a", Path: "/srv/my plugins/a"},
		"try: ledgerd plugin check thumbs":              {Name: "thumbs", Path: "/bin/python3", Args: []string{"thumbs.py"}},
	} {
		if got := failure.Explain(PluginError(place, errors.New("it did not start"))).Hint; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRememberNoSecrets: everybody may read the policy of a kind, so it keeps no values of secret fields.
func TestRememberNoSecrets(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	must.OK(t, l.SetKind(t.Context(), "ann", ledger.Kind{Name: "mail"}))
	schema, err := settings.Compile([]byte(`{"type":"object","properties":{"to":{"type":"string"},"code":{"type":"string",` +
		`"writeOnly":true},"auth":{"type":"object","properties":{"token":{"type":"string","writeOnly":true}}}}}`))
	must.OK(t, err)
	k := &Kind{Name: "mail", Policy: ledger.Kind{Name: "mail"}, Schema: schema}
	_, err = k.Remember(t.Context(), l, []string{"to=ann", "code=1234", `auth:={"token":"1234"}`})
	must.OK(t, err)
	policy, err := l.Kind(t.Context(), "mail")
	if kept := policy.Defaults.Flat(); err != nil || len(kept) != 1 || string(kept["to"].Value) != `"ann"` {
		t.Errorf("%v, %v", kept, err)
	}
}

// TestConfiguredPluginIsHere: a plugin that only the config names is not written into the ledger unless it is here. One
// that the ledger names already may be on other machines only.
func TestConfiguredPluginIsHere(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	must.OK(t, l.SetKind(t.Context(), "ann", ledger.Kind{Name: "w", Plugin: "elsewhere"}))
	must.OK(t, l.SetKind(t.Context(), "ann", ledger.Kind{Name: "people"}))
	file := filepath.Join(t.TempDir(), "ledgerd.toml")
	for _, c := range []struct{ kind, plugin, want string }{
		{"w", "elsewhere", ""},
		{"w", "elsewere", `no plugin "elsewere" (` + file + ":2)"},
		{"people", "elsewere", `no plugin "elsewere" (` + file + ":2)"},
		{"new", "elsewere", `no plugin "elsewere" (` + file + ":2)"},
	} {
		must.OK(t, os.WriteFile(file, []byte("[kinds."+c.kind+"]\nplugin = \""+c.plugin+"\"\n"), 0o600))
		lc := NewLocal(nil)
		var err error
		lc.Config, err = config.Load(config.Options{Path: file})
		must.OK(t, err)
		k, err := lc.Resolve(t.Context(), l, c.kind, "")
		if err == nil {
			err = lc.Introduce(t.Context(), l, k)
		}
		if got := fmt.Sprint(err); got != cmp.Or(c.want, "<nil>") ||
			err != nil && !strings.Contains(failure.Explain(err).Hint, "leave the key out there") {
			t.Errorf("%s by %s: %s", c.kind, c.plugin, got)
		}
	}
	if k, err := l.Kind(t.Context(), "w"); err != nil || k.Plugin != "elsewhere" {
		t.Errorf("%+v, %v", k, err)
	}
}

// TestKeptPath: a kept --with with a relative path is refused in another folder, where it would mean another file.
func TestKeptPath(t *testing.T) {
	schema, err := settings.Compile([]byte(`{"type":"object"}`))
	must.OK(t, err)
	p := &Plugin{Description: &pluginhost.Description{Config: schema}}
	here, there := t.TempDir(), t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(here, "bin"), 0o700))
	for _, name := range []string{"bin/w", "a.db"} {
		must.OK(t, os.WriteFile(filepath.Join(here, name), nil, 0o700))
	}
	for _, c := range []struct {
		kept, typed string
		refused     string
	}{
		{kept: "command=./gone.sh,{key}", refused: "./gone.sh"},
		{kept: "command=sh,bin/w", refused: "bin/w"},
		{kept: `command:=["bin/w","{key}"]`, refused: "bin/w"},
		{kept: "database=sqlite:a.db", refused: "sqlite:a.db"},
		{kept: "command=bin/w", typed: "command=/bin/true"},
		{kept: "command=bin/w", typed: "dir=" + here},
		{kept: "command=factor,{key}"},
		{kept: "command=a.db"},
		{kept: "command=/bin/true,{dir}/x"},
		{kept: "url=https://a.example/x"},
	} {
		lc := NewLocal(nil)
		lc.Memory = &Memory{Dir: t.TempDir(), Ledger: "l"}
		t.Chdir(here)
		must.OK(t, lc.KeepWith("w", p, []string{c.kept}))
		must.Do(t)(lc.inForce("w", p, nil))
		t.Chdir(there)
		var typed []string
		if c.typed != "" {
			typed = []string{c.typed}
		}
		_, err := lc.inForce("w", p, typed)
		var f failure.Error
		if err != nil {
			f = *failure.Explain(err)
		}
		if c.refused == "" && err != nil || c.refused != "" && (!strings.Contains(f.Hint, here) ||
			!strings.Contains(f.Message, " "+c.refused+" is relative")) {
			t.Errorf("%s, %s: %v", c.kept, c.typed, err)
		}
	}
}
