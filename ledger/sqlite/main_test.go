package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// childEnv names what this binary does as a process of its own instead of running tests.
const childEnv = "LEDGERD_TEST_CHILD"

var children = map[string]func(ctx context.Context, args []string) error{}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		run := children[name]
		if run == nil { // else it would run the tests: they start it again
			fmt.Fprintln(os.Stderr, "no child is called", name)
			os.Exit(2)
		}
		if err := run(context.Background(), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child is a process of this binary.
type child struct {
	*exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	errs  strings.Builder
}

// spawn starts a process; it is killed when the test ends.
func spawn(t testing.TB, name string, args ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	must.OK(t, err)
	c := &child{Cmd: exec.Command(exe, args...)}
	c.Env = append(os.Environ(), childEnv+"="+name)
	c.Stderr = &c.errs
	out, err := c.StdoutPipe()
	if err == nil {
		c.in, err = c.StdinPipe()
	}
	must.OK(t, err)
	c.lines = bufio.NewScanner(out)
	return c
}

func (c *child) start(t testing.TB) *child {
	t.Helper()
	must.OK(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c
}

// line is the next line the child prints.
func (c *child) line(t testing.TB) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("the child ended: %v %s", c.lines.Err(), c.errs.String())
	}
	return c.lines.Text()
}

// expect fails unless the next line is this one.
func (c *child) expect(t testing.TB, want string) {
	t.Helper()
	if got := c.line(t); got != want {
		t.Fatalf("the child printed %q, want %q", got, want)
	}
}

// done waits for the child to end well.
func (c *child) done(t testing.TB) {
	t.Helper()
	for c.lines.Scan() {
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("the child failed: %v\n%s", err, c.errs.String())
	}
}

// goAhead is the child's side of a common start: it writes a line and waits for its input to end.
func goAhead() error {
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func newPath(t testing.TB) string { return filepath.Join(t.TempDir(), "ledger.db") }

func mustOpen(t testing.TB, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	must.OK(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newLedger(t testing.TB) (*ledger.Ledger, string) {
	path := newPath(t)
	return ledger.New(mustOpen(t, path, sqlite.Options{}), ledger.Options{}), path
}

func numbered(n int) []ledger.NewItem {
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}
	}
	return items
}

// verify fails on every broken invariant.
func verify(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	for v, err := range l.Verify(t.Context()) {
		must.OK(t, err)
		t.Errorf("verify: %s, item %d: %s", v.Rule, v.ItemID, v.Text)
	}
}

// within fails if fn takes longer than it may in the worst case, times five.
func within(t testing.TB, d time.Duration, fn func()) {
	t.Helper()
	start := time.Now()
	if fn(); time.Since(start) > d+time.Minute {
		t.Errorf("took %v, must take %v at most", time.Since(start), d)
	}
}
