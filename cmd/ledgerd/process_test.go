package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// machine is an installation of ledgerd with a ledger.
type machine struct {
	t       testing.TB
	program string
	db      string // URL of the ledger
	env     []string
	plain   int    // variables in env that every machine has
	config  string // config file of here, with the ledger and the folder for data
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Parallel() // they mostly wait for leases to expire
	onBothHere(t, test)
}

// onFile runs a test on SQLite, if it does not depend on the database.
func onFile(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Parallel()
	test(t, newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")))
}

// onPostgres runs a test on Postgres, if SQLite has nothing of its own in it.
func onPostgres(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Parallel()
	test(t, newMachine(t, pgtest.SchemaURL(t)))
}

// onBothHere is onBoth for a test that is parallel already.
func onBothHere(t *testing.T, test func(t *testing.T, m *machine)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, newMachine(t, pgtest.SchemaURL(t)))
	})
}

func newMachine(t *testing.T, db string) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{t: t, program: filepath.Join(dir, "ledgerd"), db: db,
		env: append(os.Environ(), "LEDGERD_DB="+db, "HOME="+dir, "XDG_DATA_HOME="+filepath.Join(dir, "data"))}
	m.plain, m.config = len(m.env), filepath.Join(dir, "here.toml")
	must.OK(t, os.WriteFile(m.config, fmt.Appendf(nil, "db = %q\ndata_dir = %q\n", db, filepath.Join(dir, "data",
		"ledgerd")), 0o600))
	link(t, m.program)
	return m
}

// link gives this test binary another name, by which TestMain chooses the program. It is a hard link, because the
// program starts itself by its path as a plugin.
func link(t testing.TB, path string) {
	t.Helper()
	self, err := os.Executable()
	must.OK(t, err)
	if err := os.Link(self, path); err == nil {
		return
	}
	content, err := os.ReadFile(self) // dir is on another file system
	if err == nil {
		err = os.WriteFile(path, content, 0o755)
	}
	must.OK(t, err)
}

// started is a running ledgerd.
type started struct {
	*exec.Cmd
	stdout, stderr output
	done           chan struct{}
}

// output collects the output of a process.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (m *machine) start(args ...string) *started {
	m.t.Helper()
	return m.launch(exec.Command(m.program, args...))
}

func (m *machine) launch(cmd *exec.Cmd) *started {
	m.t.Helper()
	p := &started{Cmd: cmd, done: make(chan struct{})}
	p.Env, p.Stdout, p.Stderr = m.env, &p.stdout, &p.stderr
	must.OK(m.t, p.Start())
	go func() {
		_ = p.Wait()
		close(p.done)
	}()
	m.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
		if text := p.stderr.String(); m.t.Failed() && text != "" && !p.ProcessState.Success() {
			m.t.Logf("stderr of %s, its end:\n%s", strings.Join(p.Args, " "), text[max(0, len(text)-4000):])
		}
	})
	return p
}

// patience is the longest wait for a process; a process needs far less.
const patience = 5 * time.Minute

// exit waits for the process and returns its exit code.
func (m *machine) exit(p *started) int {
	m.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.Process.Signal(syscall.SIGQUIT)
		<-p.done
		m.t.Fatalf("ledgerd %s did not end\n%s", strings.Join(p.Args[1:], " "), p.stderr.String())
	}
	return p.ProcessState.ExitCode()
}

// ends waits for a process that must end with a code and write these texts to stderr.
func (m *machine) ends(p *started, code int, texts ...string) {
	m.t.Helper()
	got := m.exit(p)
	lacks := slices.DeleteFunc(texts, func(text string) bool { return strings.Contains(p.stderr.String(), text) })
	if got != code || len(lacks) > 0 {
		m.t.Fatalf("%s: exit %d, want %d; without %q\n%s%s", strings.Join(p.Args, " "), got, code, lacks, p.stdout.String(),
			p.stderr.String())
	}
}

// stop sends a signal to a process that must then end with a code and write these texts to stderr.
func (m *machine) stop(p *started, sig os.Signal, code int, texts ...string) {
	m.t.Helper()
	must.OK(m.t, p.Process.Signal(sig))
	m.ends(p, code, texts...)
}

// run runs a command that must end with a code, and returns its stdout.
func (m *machine) run(code int, args ...string) string {
	m.t.Helper()
	if m.simple(args) {
		return m.here(code, args...)
	}
	p := m.start(args...)
	m.ends(p, code)
	return p.stdout.String()
}

// simple reports whether here can run a command: on a machine without settings, one that neither works nor waits.
// Scripts test the same commands as processes.
func (m *machine) simple(args []string) bool {
	return (slices.Contains(simple, args[0]) || slices.Contains(simple, strings.Join(args[:min(2, len(args))], " "))) &&
		len(m.env) == m.plain && !slices.Contains(args, "--config")
}

var simple = []string{"add", "agents", "cancel", "claim", "db migrate", "db status", "db verify", "finish", "journal",
	"kind ls", "kind pause", "kind resume", "kind set", "kind show", "lock ls", "lock release", "ls", "retry", "show"}

// here runs a command in this process. Tests set up a ledger and read it again and again, and starting a program for
// each call would take processor time from other tests.
func (m *machine) here(code int, args ...string) string {
	m.t.Helper()
	stdout, _ := m.printed(code, args...)
	return stdout
}

// printed is here, and returns stderr as well.
func (m *machine) printed(code int, args ...string) (stdout, stderr string) {
	m.t.Helper()
	got, stdout, stderr := inProcess(m.t.Context(), m.config, args)
	if got != code {
		m.t.Fatalf("ledgerd %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, stdout, stderr)
	}
	return stdout, stderr
}

// inProcess runs ledgerd in this process with a config file, and returns what a process without --config would print.
func inProcess(ctx context.Context, config string, args []string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	in := &app.Interrupts{Soft: ctx, Hard: ctx, HandOver: func() {}}
	code = cli.Run(in, app.Program{Plugins: plugins}, append([]string{"--config", config}, args...),
		strings.NewReader(""), &out, &err)
	typed := strings.NewReplacer(" --config "+config, "", "   config: "+config, "")
	return code, typed.Replace(out.String()), typed.Replace(err.String())
}

// until waits until a condition holds that depends on another process.
func (m *machine) until(what string, holds func() bool) {
	m.t.Helper()
	must.Eventually(m.t, what, holds)
}

// lines counts the lines of a file that begin with a word, by what follows it.
func lines(t testing.TB, path, word string) map[string]int {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	found := map[string]int{}
	for s := bufio.NewScanner(bytes.NewReader(content)); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), word+" "); ok {
			found[rest]++
		}
	}
	return found
}

// The first signal stops claiming and finishes running items, the second ends them now.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	dir := t.TempDir()
	effects, till := filepath.Join(dir, "effects"), filepath.Join(dir, "go")
	with := []string{"--set", "till=" + till, "--with", "path=" + effects, "-j", "1"}
	inputs := []string{"run", "effect", "a", "b", "c", "d", "e"}
	polite := m.start(append(inputs, with...)...)
	m.until("one is begun", func() bool { return len(lines(t, effects, "start")) == 1 })
	must.OK(t, polite.Process.Signal(syscall.SIGINT))
	m.until("it reports so", func() bool { return strings.Contains(polite.stderr.String(), "once more to stop now") })
	must.OK(t, os.WriteFile(till, nil, 0o600))
	m.ends(polite, 130)
	done := lines(t, effects, "done") // one more may have begun while the signal was on its way to the worker
	if len(done) == 0 || len(done) > 2 {
		t.Errorf("done: %v, want what ran", done)
	}
	if want := fmt.Sprintf("%d left: run the same command to go on",
		5-len(done)); !strings.Contains(polite.stdout.String(), want) {
		t.Errorf("stdout: %s, want %q", polite.stdout.String(), want)
	}

	must.OK(t, os.Remove(till))
	before := len(lines(t, effects, "start"))
	hasty := m.start(append(inputs, with...)...)
	m.until("another one is begun", func() bool { return len(lines(t, effects, "start")) > before })
	for range 2 {
		must.OK(t, hasty.Process.Signal(syscall.SIGINT))
		// Two signals at once would count as one.
		m.until("it has noticed", func() bool { return strings.Contains(hasty.stderr.String(), "once more to stop now") })
	}
	m.ends(hasty, 130)
	if held := m.run(failure.ExitOK, "ls", "--state", "leased", "-o", "jsonl"); held != "" {
		t.Errorf("still leased: %s", held)
	}
	m.run(failure.ExitOK, "db", "verify")

	must.OK(t, os.WriteFile(till, nil, 0o600))
	m.run(failure.ExitOK, append(inputs, with...)...)
	m.run(failure.ExitOK, "db", "verify")
}

// When the reader of a pipe ends early, the run stops and keeps no leases.
func TestReaderGoesAway(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	r, w, err := os.Pipe()
	must.OK(t, err)
	args := []string{"run", "effect", "-o", "jsonl", "-j", "1", "--set", "ms=200"}
	for i := range 200 {
		args = append(args, fmt.Sprint("item ", i))
	}
	run := exec.Command(m.program, args...)
	run.Env, run.Stdout = m.env, w
	must.OK(t, run.Start())
	w.Close()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Error(err)
	}
	r.Close()
	if _ = run.Wait(); run.ProcessState.ExitCode() != failure.ExitError {
		t.Errorf("%s, want exit 1", run.ProcessState)
	}
	if held := m.run(failure.ExitOK, "ls", "--state", "leased", "-o", "jsonl"); held != "" {
		t.Errorf("still leased: %s", held)
	}
	if ready := m.run(failure.ExitOK, "ls", "--state", "ready", "--limit", "1", "-o", "jsonl"); ready == "" {
		t.Error("it went on to the end")
	}
}

// count counts the items that match a filter.
func (m *machine) count(where string) int {
	m.t.Helper()
	return strings.Count(m.run(failure.ExitOK, "ls", "--all", "--where", where, "-o", "jsonl"), "\n")
}
