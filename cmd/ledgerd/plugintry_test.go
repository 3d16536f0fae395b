package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/plugin"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Ctrl-C cancels the item of plugin run, and the plugin ends in the usual way.
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

// A secret is hidden as a whole even if another secret is its beginning. It is hidden line by line if it has several
// lines, in its JSON form, and in errors.
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

// The author's guide lists every check.
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
