package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/plugin"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// needed is the config without which a bundled plugin does not start; DIR is a folder of the test's.
var needed = map[string][]string{
	"exec":  {"command=cat"},
	"photo": {"out_dir=DIR"},
	"mail":  {"server=127.0.0.1:25", "from=reports@example.com"},
}

// TestBundledPluginsConform: every plugin that is linked in passes every check.
func TestBundledPluginsConform(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ledgerd")
	link(t, program)
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		if slices.Contains([]string{app.BenchPlugin, "effect", "poison"}, name) {
			continue // for measuring, and for tests
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := sdk.Processor(plugins[name]()).Describe(t.Context(), &wire.DescribeRequest{})
			must.OK(t, err)
			schema, err := settings.Compile(d.ConfigSchema)
			must.OK(t, err)
			var with []string
			for _, setting := range needed[name] {
				with = append(with, strings.Replace(setting, "DIR", t.TempDir(), 1))
			}
			config, err := schema.Parse(nil, with)
			must.OK(t, err)
			target := conformance.Target{Spec: pluginproc.Spec{Path: program, Args: []string{name}}, Config: config,
				Embedded: true, Quick: true}
			for _, c := range conformance.Checks(target) {
				if v, err := plugin.Checked(t.Context(), c, target); err != nil || !v.OK {
					t.Errorf("%s: %v %s", c.Name, err, v.Error)
				}
			}
		})
	}
}

// TestInterruptedTrial: Ctrl-C cancels the item of plugin run, and the plugin ends in good order.
func TestInterruptedTrial(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:none.db")
	effects := filepath.Join(t.TempDir(), "effects")
	p := m.start("plugin", "run", "effect", "thing", "--set", "ms=600000", "--with", "path="+effects)
	m.until("the work has begun", func() bool { return len(lines(t, effects, "start")) == 1 })
	m.stop(p, syscall.SIGINT, 130)
	if !strings.HasPrefix(p.stdout.String(), "outcome  cancelled ") || !strings.Contains(p.stderr.String(),
		"cancelling the item") {
		t.Errorf("%s%s", p.stdout.String(), p.stderr.String())
	}
}

// TestHiddenSecrets: a secret is hidden whole where another one is its beginning. It is hidden line by line
// where it has several, as JSON has it, and in errors, too.
func TestHiddenSecrets(t *testing.T) {
	var out strings.Builder
	const key = "-----BEGIN KEY-----\r\nabcdefgh\nij\"klm\n-----END KEY-----\n"
	c := plugin.NewCommentary(&out, map[string]string{"a": "hunter2", "b": "hunter2-and-more", "c": "unter", "key": key,
		"short": "abc"})
	c.Say("%s %s %s", "hunter2-and-more", "hunter2", "abc")
	for line := range strings.Lines(key) {
		c.Say("stderr: %s", strings.TrimSpace(line))
	}
	c.Say("%s", pluginproc.JSON(&wire.Problem{Message: "it is " + key}))
	err := c.HideIn(pluginproc.ErrEnded)
	if f := failure.Explain(c.HideIn(failure.Usage("bad_setting", "not hunter2", "%s is refused",
		"hunter2-and-more"))); f.Exit != failure.ExitUsage || f.Message != redact.Mask+" is refused" ||
		f.Hint != "not "+redact.Mask {
		t.Errorf("%+v", f)
	}
	for _, part := range []string{"and-more", "hunter", "abcdefgh", "klm", "KEY"} {
		if strings.Contains(out.String(), part) {
			t.Errorf("%q is to be seen in %s", part, out.String())
		}
	}
	if !strings.Contains(out.String(), "abc") || err.Error() != pluginproc.ErrEnded.Error() {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestChecksInGuide: the author's guide lists every check.
func TestChecksInGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/plugins/testing.md")
	must.OK(t, err)
	for _, c := range conformance.Checks(conformance.Target{}) {
		name := c.Name
		if c.Timed {
			name += " ⏱"
		}
		row := fmt.Sprintf("| %s | %s | %s |\n", c.Group, name, strings.ReplaceAll(c.About, "|", `\|`))
		if !strings.Contains(string(text), row) {
			t.Errorf("not in docs/plugins/testing.md: %s", row)
		}
	}
}
