// Package exampletest runs the programs of the examples for their tests, as the READMEs describe it. Each program is
// built once per test binary and runs as a process.
package exampletest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// Databases runs a test on SQLite and on Postgres, both at the same time. The address is a value for --db.
func Databases(t *testing.T, test func(t *testing.T, address string)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, pgtest.SchemaURL(t))
	})
}

// Built is a set of programs. The first call of Dir builds them.
type Built struct {
	packages []string
	once     sync.Once
	dir      string
	err      error
}

// Build returns the programs of these packages, not built yet.
func Build(packages ...string) *Built { return &Built{packages: packages} }

// Dir returns the folder of the programs, and builds them if they are not built yet.
func (b *Built) Dir(t testing.TB) string {
	t.Helper()
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "ledgerd-example-"); b.err != nil {
			return
		}
		build := exec.Command("go", append([]string{"build", "-ldflags=-s -w", "-o", b.dir + "/"}, b.packages...)...)
		if output, err := build.CombinedOutput(); err != nil {
			b.err = fmt.Errorf("%v: %w\n%s", build.Args, err, output)
		}
	})
	must.OK(t, b.err)
	return b.dir
}

// Run runs the tests, removes the programs, and returns the exit code.
func (b *Built) Run(m *testing.M) int {
	defer func() { _ = os.RemoveAll(b.dir) }()
	return m.Run()
}

// Home is a folder and an environment in which a person tries an example.
type Home struct {
	Dir string
	env []string
}

// Home makes a Home with the programs in its PATH, and with copies of these files and folders of the example.
func (b *Built) Home(t testing.TB, files ...string) *Home {
	t.Helper()
	h := &Home{Dir: t.TempDir()}
	h.env = []string{"HOME=" + h.Dir, "PWD=" + h.Dir, "TMPDIR=" + os.TempDir()}
	h.Set("PATH", b.Dir(t)+":"+os.Getenv("PATH"))
	for _, name := range files {
		to := filepath.Join(h.Dir, filepath.Base(name))
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			err = os.CopyFS(to, os.DirFS(name))
		} else if err == nil {
			var content []byte
			if content, err = os.ReadFile(name); err == nil {
				err = os.WriteFile(to, content, 0o700)
			}
		}
		must.OK(t, err)
	}
	return h
}

// Set sets a variable of the environment.
func (h *Home) Set(name, value string) { h.env = append(h.env, name+"="+value) } // the last value of a name counts

// Sh runs a line of shell, and returns its output.
func (h *Home) Sh(line string) string {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = h.Dir, h.env
	out, _ := cmd.CombinedOutput() // an error is in the output
	return string(out)
}

// Sessions returns the sessions of README.md, the texts between ```console and ```. Their number must be want.
func Sessions(t testing.TB, want int) (all []string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	must.OK(t, err)
	for _, found := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		all = append(all, found[1])
	}
	if len(all) != want {
		t.Fatalf("the README has %d sessions, want %d", len(all), want)
	}
	return all
}

var duration = regexp.MustCompile(`[0-9]+\.[0-9] s\b`)

// Repeat runs the commands of a session, and compares their output with the session. Durations may differ. The
// functions steady replace other parts that may differ.
func (h *Home) Repeat(t testing.TB, session string, steady ...func(string) string) {
	t.Helper()
	var got strings.Builder
	for line := range strings.Lines(session) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			got.WriteString(line + h.Sh(command))
		}
	}
	comparable := func(s string) string {
		for _, f := range steady {
			s = f(s)
		}
		return duration.ReplaceAllString(s, "0.1 s")
	}
	if diff := cmp.Diff(comparable(session), comparable(got.String())); diff != "" {
		t.Errorf("-README +printed\n%s", diff)
	}
}

// patience is the longest wait for a line of a server. A server needs far less.
const patience = 5 * time.Minute

// Server is a process that listens on an address and prints lines.
type Server struct {
	*exec.Cmd
	Addr  string      // HOST:PORT
	lines chan string // closed when the process has ended
}

// Serve starts a server of an example. The first line that it prints must have its address. The server ends with the
// test at the latest.
func (b *Built) Serve(t testing.TB, name string, args ...string) *Server {
	t.Helper()
	s := &Server{Cmd: exec.Command(filepath.Join(b.Dir(t), name), args...), lines: make(chan string, 100_000)}
	s.Stderr = os.Stderr
	out, err := s.StdoutPipe()
	if err == nil {
		err = s.Start()
	}
	must.OK(t, err)
	go func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			s.lines <- in.Text()
		}
		_ = s.Wait()
		close(s.lines)
	}()
	t.Cleanup(func() { s.End() })
	line := s.Next(t)
	if s.Addr = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(line); s.Addr == "" {
		t.Fatalf("%s printed %q", name, line)
	}
	return s
}

// Next returns the next line of a server.
func (s *Server) Next(t testing.TB) string {
	t.Helper()
	select {
	case line, more := <-s.lines:
		if more {
			return line
		}
		t.Fatalf("%v has ended", s.Args)
	case <-time.After(patience):
		t.Fatalf("%v prints nothing", s.Args)
	}
	return ""
}

// End kills a server, and returns the lines that Next has not returned.
func (s *Server) End() (unread []string) {
	_ = s.Process.Kill()
	for line := range s.lines {
		unread = append(unread, line)
	}
	return unread
}
