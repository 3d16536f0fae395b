// Package exampletest runs the programs of the examples for their tests: each a real process, built once
// per test binary, on both databases.
package exampletest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// Databases runs a test on both. The address is one that ledgerd takes for --db.
func Databases(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, pgtest.SchemaURL(t)) })
}

// Built are programs, which are built when the first test asks for them.
type Built struct {
	packages []string
	once     sync.Once
	dir      string
	err      error
}

// Build names the packages of programs.
func Build(packages ...string) *Built { return &Built{packages: packages} }

// Dir builds the programs and returns their folder.
func (b *Built) Dir(t testing.TB) string {
	t.Helper()
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "ledgerd-example-"); b.err != nil {
			return
		}
		build := exec.Command("go", append([]string{"build", "-o", b.dir + "/"}, b.packages...)...)
		if said, err := build.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("%v: %w\n%s", build.Args, err, said)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.dir
}

// Path builds the programs and returns the path of one.
func (b *Built) Path(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(b.Dir(t), name)
}

// Run runs the tests, removes the programs, and returns the exit code.
func (b *Built) Run(m *testing.M) int {
	defer func() { _ = os.RemoveAll(b.dir) }()
	return m.Run()
}

// Patience is how long a process is waited for: far more than it may need.
const Patience = 5 * time.Minute

// Program is a process. Each line of its stdout comes over a channel.
type Program struct {
	*exec.Cmd
	In     io.WriteCloser
	Stderr strings.Builder
	lines  chan string // closed at its end
}

// Start starts a program, which ends with the test at the latest.
func Start(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	p := &Program{Cmd: cmd, lines: make(chan string, 100_000)}
	cmd.Stderr = &p.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.In = in
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = p.Wait() // ProcessState has it
		close(p.lines)
	}()
	t.Cleanup(p.Kill)
	return p
}

// Kill ends a process with SIGKILL, unless it has ended, and waits until it has.
func (p *Program) Kill() {
	_ = p.Process.Kill()
	for range p.lines {
	}
}

// Next is the next line of a process, or false at its end.
func (p *Program) Next(t testing.TB) (string, bool) {
	t.Helper()
	select {
	case line, more := <-p.lines:
		return line, more
	case <-time.After(Patience):
		t.Fatalf("%v prints nothing and does nothing", p.Args)
		return "", false
	}
}

// End waits for the end of a process, which must be of one of these codes, and returns the rest of its
// output.
func (p *Program) End(t testing.TB, codes ...int) string {
	t.Helper()
	var said strings.Builder
	for line, more := p.Next(t); more; line, more = p.Next(t) {
		said.WriteString(line + "\n")
	}
	if !slices.Contains(codes, p.ProcessState.ExitCode()) {
		t.Fatalf("%v: %s, want exit %d\n%s%s", p.Args, p.ProcessState, codes, said.String(), p.Stderr.String())
	}
	return said.String()
}
