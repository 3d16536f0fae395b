// Package childtest starts the binary of a test as further processes. A test talks with them in lines, and may kill and
// freeze them.
package childtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
)

// Runs has the functions that a child can run, by the names that tests pass to New. Fill it in init.
var Runs = map[string]func(ctx context.Context, args []string) error{}

const env = "LEDGERD_TEST_CHILD"

// Main runs the function that this process was started for, or else the tests. The tests must leave no goroutine
// behind.
func Main(m *testing.M) {
	name := os.Getenv(env)
	if name == "" {
		goleak.VerifyTestMain(m)
		return
	}
	run := Runs[name]
	if run == nil { // the tests must not run: they would start this child again
		fmt.Fprintln(os.Stderr, "no child is called", name)
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child is a process of this binary.
type Child struct {
	*exec.Cmd
	In    io.WriteCloser
	Lines *bufio.Scanner // of its standard output
	Errs  strings.Builder
}

// New prepares a process that runs a function of Runs.
func New(t testing.TB, name string, args ...string) *Child {
	t.Helper()
	exe, err := os.Executable()
	must.OK(t, err)
	c := &Child{Cmd: exec.Command(exe, args...)}
	c.Env, c.Stderr = append(os.Environ(), env+"="+name), &c.Errs
	out, err := c.StdoutPipe()
	must.OK(t, err)
	c.In, err = c.StdinPipe()
	must.OK(t, err)
	c.Lines = bufio.NewScanner(out)
	return c
}

// Begin starts the process; it is killed when the test ends.
func (c *Child) Begin(t testing.TB) *Child {
	t.Helper()
	must.OK(t, c.Cmd.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // it may have been waited for
	})
	return c
}

// Start prepares a process and starts it; see New and Begin.
func Start(t testing.TB, name string, args ...string) *Child {
	t.Helper()
	return New(t, name, args...).Begin(t)
}

// Line returns the next line that the child prints.
func (c *Child) Line(t testing.TB) string {
	t.Helper()
	if !c.Lines.Scan() {
		_ = c.Process.Kill()
		_ = c.Wait() // after that Errs is complete
		t.Fatalf("the child ended: %v %s", c.Lines.Err(), c.Errs.String())
	}
	return c.Lines.Text()
}

// Expect fails unless the next line is this one.
func (c *Child) Expect(t testing.TB, want string) {
	t.Helper()
	if got := c.Line(t); got != want {
		t.Fatalf("the child printed %q, want %q", got, want)
	}
}

// Tell writes a line to the child.
func (c *Child) Tell(t testing.TB, line string) {
	t.Helper()
	_, err := fmt.Fprintln(c.In, line)
	must.OK(t, err)
}

// Done reads the other lines and waits for the child to end without an error.
func (c *Child) Done(t testing.TB) {
	t.Helper()
	for c.Lines.Scan() {
	}
	if err := c.Wait(); err != nil {
		t.Fatalf("the child failed: %v\n%s", err, c.Errs.String())
	}
}

// Ask is for the function of a child: it prints a line, and waits for a line or for the end of its input.
func Ask(line string) {
	fmt.Println(line)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}
