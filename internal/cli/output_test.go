package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/sdk"
)

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command whose output cannot be written fails, also if it would end with 0 or another exit status.
func TestLostOutput(t *testing.T) {
	t.Setenv("LEDGERD_DB", "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	run := func(out interface{ Write([]byte) (int, error) }, args ...string) (int, string) {
		var stderr bytes.Buffer
		in := &app.Interrupts{Soft: t.Context(), Hard: t.Context(), HandOver: func() {}}
		code := Run(in, app.Program{Plugins: map[string]func() *sdk.Plugin{}}, args, strings.NewReader(""), out, &stderr)
		return code, stderr.String()
	}
	for _, args := range [][]string{{"db", "migrate"}, {"kind", "set", "k", "--input", "line"}, {"add", "k", "a"}} {
		if code, stderr := run(&bytes.Buffer{}, args...); code != failure.ExitOK {
			t.Fatal(args, code, stderr)
		}
	}
	for _, args := range [][]string{{"--help"}, {"--version"}, {"run", "--help"}, {"add", "k", "b"}, {"ls"}, {"stats"},
		{"doctor"}, {"work", "--drain"}, {"db", "migrate"}} {
		if code, stderr := run(full{}, args...); code != failure.ExitTemporary || !strings.Contains(stderr, "no space left") {
			t.Errorf("%s: exit %d, want %d: %s", args, code, failure.ExitTemporary, stderr)
		}
	}
}
