package work

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/must"
)

// TestFlagsFromConfig: a flag of work that is a key of the config has the typed value, else the value of its variable,
// else the value in the file, else the default.
func TestFlagsFromConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledgerd.toml")
	must.OK(t, os.WriteFile(file, []byte("lease = \"2m\"\ngrace = \"20s\"\nshard = \"1/2\"\nplugin_dir = [\"/file\"]\n"),
		0o600))
	for _, test := range []struct{ flag, byDefault, inFile, env, typed string }{
		{"lease", "1m", "2m", "3m", "4m"},
		{"grace", "30s", "20s", "10s", "5s"},
		{"shard", "", "1/2", "2/3", "3/4"},
		{"plugin-dir", "[]", "[/file]", "[/env]", "[/typed]"},
	} {
		value := func(file, env, typed string) string {
			t.Setenv("LEDGERD_CONFIG", file)
			t.Setenv(config.EnvName(test.flag), unbracket(env))
			a := app.New(&app.Interrupts{Soft: t.Context(), Hard: t.Context()}, app.Program{}, os.Stdin, io.Discard, io.Discard)
			flags := WorkCommand(a).Flags()
			if typed != "" {
				must.OK(t, flags.Set(test.flag, unbracket(typed)))
			}
			must.OK(t, a.Configure(flags))
			return flags.Lookup(test.flag).Value.String()
		}
		none := filepath.Join(t.TempDir(), "empty.toml")
		must.OK(t, os.WriteFile(none, nil, 0o600))
		for _, c := range []struct{ config, env, typed, want string }{
			{none, "", "", test.byDefault},
			{file, "", "", test.inFile},
			{file, test.env, "", test.env},
			{none, test.env, "", test.env},
			{file, test.env, test.typed, test.typed},
			{none, "", test.typed, test.typed},
		} {
			if got := value(c.config, c.env, c.typed); got != c.want {
				t.Errorf("--%s: %s, want %s", test.flag, got, c.want)
			}
		}
	}
}

// unbracket removes the brackets around a list.
func unbracket(text string) string {
	if len(text) > 1 && text[0] == '[' {
		return text[1 : len(text)-1]
	}
	return text
}
