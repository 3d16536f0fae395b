//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/item"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
)

// fail adds items to a kind, and makes each fail for good. Payload and error have size bytes each.
func (m *machine) fail(kind string, items, size int) {
	m.t.Helper()
	l := m.ledger()
	payload, text := ledger.JSON(strings.Repeat("p", size)), strings.Repeat("e", size)
	for from := 0; from < items; from += 1000 {
		n := min(1000, items-from)
		batch, ends := make([]ledger.NewItem, n), make([]ledger.Ending, n)
		for i := range batch {
			batch[i] = ledger.NewItem{Kind: kind, Key: fmt.Sprint("item ", from+i), Payload: payload}
		}
		must.Do(m.t)(l.Add(m.t.Context(), batch...))
		leases, err := l.Claim(m.t.Context(), ledger.Claim{Kind: kind, Agent: "test", Limit: n})
		if err != nil || len(leases) != n {
			m.t.Fatalf("%d leases, %v", len(leases), err)
		}
		for i, ls := range leases {
			ends[i] = ledger.Ending{Lease: ls, Result: ledger.Result{Outcome: ledger.OutcomeFailed, Final: true,
				Code: fmt.Sprint("code_", i%7), Error: text}}
		}
		for _, err := range l.Finish(m.t.Context(), ends...) {
			must.OK(m.t, err)
		}
	}
}

// measured is the peak memory of a command, and the size of its stdout.
type measured struct{ KiB, Bytes int }

func init() { programs["measurer"] = measurer }

// measurer is the program that measures a command. The system also counts the memory of a process's parent, at the time
// of the start. The test uses much memory, so this small program is the parent instead.
func measurer() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	var printed counter
	cmd.Stdout, cmd.Stderr = &printed, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rss := int(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	if runtime.GOOS == "darwin" { // there it is in bytes
		rss /= 1024
	}
	_ = json.NewEncoder(os.Stdout).Encode(measured{rss, int(printed)})
}

// counter counts the bytes that are written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// measure runs a command and measures it.
func (m *machine) measure(args ...string) (got measured) {
	m.t.Helper()
	program := filepath.Join(filepath.Dir(m.program), "measurer")
	if _, err := os.Stat(program); err != nil {
		link(m.t, program)
	}
	cmd := exec.Command(program, append([]string{m.program}, args...)...)
	cmd.Env = append(m.env, "GOGC=40") // with little garbage the peak is the memory that is really needed
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		m.t.Fatalf("%s: %v", args, err)
	}
	return got
}

// The memory of ls --all and errors does not grow with the ledger. In make test-large the ledger has 200,000 items,
// also on Postgres.
func TestMemoryIsBounded(t *testing.T) {
	const usual = 4 << 10
	size, few, many := usual, 2_000, 8_000 // with few items all caches are full already
	if n, err := strconv.Atoi(os.Getenv("LEDGERD_TEST_ROWS")); err == nil {
		size, few, many = 1<<10, 8_000, n
	}
	t.Parallel()
	dbs := map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "ledger.db")}
	commands := [][]string{{"ls", "--all", "-o", "json", "-q"}, {"errors", "-o", "json", "-q"}}
	if size != usual {
		dbs["postgres"] = pgtest.SchemaURL(t)
		commands = append(commands, []string{"ls", "--all", "-o", "jsonl", "-q"})
	}
	for name, db := range dbs {
		t.Run(name, func(t *testing.T) { memoryIsBounded(t, newMachine(t, db), commands, size, few, many) })
	}
}

func memoryIsBounded(t *testing.T, m *machine, commands [][]string, size, few, many int) {
	m.fail("few", few, size)
	m.fail("many", many, size)
	for _, command := range commands {
		small := m.measure(append(command, "--where", "kind:few")...)
		large := m.measure(append(command, "--where", "kind:many")...)
		if command[0] == "ls" && large.Bytes < many*2*size {
			t.Errorf("%s: %d bytes of %d items", command, large.Bytes, many)
		}
		t.Logf("%s: %d KiB for %d items, %d KiB for %d items with %d KiB", command, small.KiB, few, large.KiB, many,
			many*2*size/1024)
		if held := large.KiB - small.KiB; held > (many-few)*2*size/1024/2 || held > small.KiB {
			t.Errorf("%s: %d KiB for %d items, %d KiB for %d", command, small.KiB, few, large.KiB, many)
		}
	}
}

// A bulk act that is killed while it runs has changed whole pages, each of which is in the journal. The same command
// then changes the rest, and nothing twice.
func TestInterruptedRetry(t *testing.T) {
	const items = 10_000
	onFile(t, func(t *testing.T, m *machine) {
		m.fail("k", items, 10)
		db := m.database()
		journalled := func() (pages, changed int) {
			t.Helper()
			err := db.QueryRowContext(t.Context(), "SELECT count(*), coalesce(sum(changed), 0) FROM ledger_journal WHERE "+
				"action = 'retry'").Scan(&pages, &changed)
			must.OK(t, err)
			return pages, changed
		}
		retry := []string{"retry", "--where", "state:dead kind:k", "-y", "-o", "json"}
		p := m.start(retry...)
		m.until("some are done", func() bool { pages, _ := journalled(); return pages > 1 })
		_ = p.Process.Kill()
		<-p.done
		_, before := journalled()
		var res item.Acted
		must.OK(t, json.Unmarshal([]byte(m.run(failure.ExitOK, retry...)), &res))
		if before == 0 || before >= items || int(res.Changed) != items-before || int(res.Matched) != items-before {
			t.Errorf("%d before it was killed, then %+v, of %d", before, res, items)
		}
		if _, changed := journalled(); changed != items {
			t.Errorf("the journal has %d changes of %d items", changed, items)
		}
		if ready := m.count("state:ready kind:k"); ready != items {
			t.Errorf("%d are ready", ready)
		}
		m.run(failure.ExitOK, "db", "verify")
	})
}
