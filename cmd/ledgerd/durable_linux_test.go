package main

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/stracetest"
)

// startTraced starts ledgerd under strace.
func (m *machine) startTraced(options []string, args ...string) (*started, stracetest.Trace) {
	m.t.Helper()
	cmd := exec.Command(m.program, args...)
	trace := stracetest.Wrap(m.t, cmd, options...)
	return m.launch(cmd), trace
}

// inputsOf returns args and n inputs for the plugin effect.
func inputsOf(n int, args ...string) []string {
	for i := range n {
		args = append(args, fmt.Sprint("text-", i))
	}
	return args
}

var every = flag.Bool("every", false, "let every write and every sync fail in turn, not only some")

// Writes or syncs of the disk fail during a run, once or always from then on. The run either continues and is complete,
// or ends with the reason and the exit code for "try again". Then the same command on a disk that works completes the
// run, and the ledger is sound.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	ks := []int{5}
	if *every {
		ks = nil
		for k := range 60 {
			ks = append(ks, k+1)
		}
	}
	struck := 0
	for _, calls := range []string{"pwrite64:error=ENOSPC", "pwrite64:error=EIO", "fdatasync,fsync:error=EIO"} {
		for _, lasting := range []string{"", "+"} {
			for _, k := range ks {
				if m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db")); m.runWith(calls + fmt.Sprintf(":when=%d",
					k) + lasting) {
					struck++
				}
			}
		}
	}
	if t.Logf("struck %d times", struck); struck < 6*len(ks)/4 {
		t.Errorf("only %d runs were struck", struck)
	}
}

// runWith runs a command with a fault, and then once more without it. It reports whether the fault occurred.
func (m *machine) runWith(fault string) (struck bool) {
	m.t.Helper()
	args := inputsOf(6, "run", "effect", "-o", "jsonl")
	calls, _, _ := strings.Cut(fault, ":")
	p, trace := m.startTraced([]string{"-s", "0", "-e", "trace=" + calls, "-e", "inject=" + fault}, args...)
	code := m.exit(p)
	said := p.stderr.String()
	switch {
	case code == failure.ExitOK:
	case code != failure.ExitTemporary:
		m.t.Errorf("%s: exit %d, want %d\n%s", fault, code, failure.ExitTemporary, said)
	case !strings.Contains(said, "the disk is full") && !strings.Contains(said, "reports an error"):
		m.t.Errorf("%s: does not say what is wrong:\n%s", fault, said)
	}
	m.run(failure.ExitOK, args...)
	if done := m.count("state:done"); done != 6 {
		m.t.Errorf("%s: %d of 6 items are done in the end", fault, done)
	}
	m.run(failure.ExitOK, "db", "verify")
	return slices.ContainsFunc(trace.Calls(m.t), stracetest.Call.Injected)
}
