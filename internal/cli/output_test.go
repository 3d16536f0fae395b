package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
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

// ahead is a store whose clock is an hour ahead of this machine.
type ahead struct{ ledger.Store }

func (s ahead) Now(ctx context.Context) (time.Time, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(time.Hour), err
}

// Times of the ledger are compared with its own clock, not with that of this machine.
func TestClockOfTheLedger(t *testing.T) {
	t.Setenv("LEDGERD_DB", "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	p := app.Program{Store: func(s ledger.Store) ledger.Store { return ahead{s} }}
	for _, c := range []struct{ line, want string }{
		{"db migrate", ""},
		{"kind set k --input line", ""},
		{"add k a b", "added 2"},
		{"claim k --agent ann --limit 2 --lease 1m", "1.1"},
		{"finish 1.1", ""},
		{"add k a --again=2h", "known 1"},
		{"add k a --again=30m", "reopened 1"},
		{"doctor", "1 item leased beyond the time of the lease"},
	} {
		var stdout, stderr bytes.Buffer
		in := &app.Interrupts{Soft: t.Context(), Hard: t.Context(), HandOver: func() {}}
		Run(in, p, strings.Fields(c.line), strings.NewReader(""), &stdout, &stderr)
		if !strings.Contains(stdout.String(), c.want) {
			t.Errorf("%s: %q is not in\n%s%s", c.line, c.want, &stdout, &stderr)
		}
	}
}
