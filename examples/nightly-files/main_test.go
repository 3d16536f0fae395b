// Package nightlyfiles tests the example of README.md with real processes on both databases: six ways
// in which machines that share a table of files work some of them twice, or leave some, and that
// ledgerd does neither.
package nightlyfiles

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/sdk"
)

// The test binary is every program of these tests: a worker of one of the ways, or a plugin.
func TestMain(m *testing.M) {
	role := map[string]func([]string) error{"worker": work, "daily": daily}
	switch {
	case filepath.Base(os.Args[0]) == "ledgerd-plugin-"+pluginName:
		sdk.Main(gated())
	case len(os.Args) > 1 && role[os.Args[1]] != nil:
		if err := role[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// databases runs a test on both. The address is one that ledgerd takes for --db.
func databases(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "files.db")) })
	t.Run("postgres", func(t *testing.T) {
		u, err := url.Parse(pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("search_path", pgtest.Schema(t))
		u.RawQuery = q.Encode()
		test(t, u.String())
	})
}

// process is a program that runs. Of what it says on stdout each line comes over a channel.
type process struct {
	*exec.Cmd
	in     io.WriteCloser
	lines  chan string // closed at its end
	stderr strings.Builder
}

// patience is how long a process is waited for: far more than it may need.
const patience = time.Minute

// start starts a program, which ends with the test at the latest.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, lines: make(chan string, 100_000)}
	cmd.Stderr = &p.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.in = in
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		_ = p.Wait() // ProcessState says it
		close(p.lines)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-ended
	})
	return p
}

// next is the next line of a process, or false at its end.
func (p *process) next(t *testing.T) (string, bool) {
	t.Helper()
	select {
	case line, more := <-p.lines:
		return line, more
	case <-time.After(patience):
		t.Fatalf("%v says and does nothing", p.Args)
		return "", false
	}
}

// end waits for the end of a process, which must be of this code, and returns what else it said.
func (p *process) end(t *testing.T, code int) string {
	t.Helper()
	var said strings.Builder
	for line, more := p.next(t); more; line, more = p.next(t) {
		said.WriteString(line + "\n")
	}
	if got := p.ProcessState.ExitCode(); got != code {
		t.Fatalf("%v: exit %d, want %d\n%s%s", p.Args, got, code, said.String(), p.stderr.String())
	}
	return said.String()
}

// built is the folder of program, if there is one.
var built string

// program is ledgerd, built once for all tests.
var program = sync.OnceValues(func() (path string, err error) {
	if built, err = os.MkdirTemp("", "ledgerd-nightly-"); err != nil {
		return "", err
	}
	path = filepath.Join(built, "ledgerd")
	build := exec.Command("go", "build", "-o", path, "github.com/ledgerd/ledgerd/cmd/ledgerd")
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", build.Args, err, said)
	}
	return path, nil
})
