//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/python/pythontest"
)

// A plugin in Python is made, packed into one file and added, as its author would do. Then its process is killed three
// times while it works some items: no item is lost, and none is done twice in the ledger. LEDGERD_TEST_ROWS is the
// number of items.
func TestPythonKilled(t *testing.T) {
	must.OK(t, pythontest.Find())
	onFile(t, func(t *testing.T, m *machine) {
		n := 300
		if rows, err := strconv.Atoi(os.Getenv("LEDGERD_TEST_ROWS")); err == nil {
			n = rows
		}
		m.run(failure.ExitOK, "db", "migrate")
		m.addPython()
		dir := t.TempDir()
		effects, inputs := filepath.Join(dir, "effects"), filepath.Join(dir, "inputs")
		var keys strings.Builder
		for i := range n {
			fmt.Fprintf(&keys, "item %d\n", i)
		}
		must.OK(t, os.WriteFile(inputs, []byte(keys.String()), 0o600))
		m.run(failure.ExitOK, "kind", "set", "lines", "--backoff-base", "1ms", "--backoff-cap", "1ms", "--max-crashes", "10")
		began := time.Now()
		waits := []string{fmt.Sprint("item ", n/10), fmt.Sprint("item ", n/2), fmt.Sprint("item ", n*9/10)}
		p := m.start("run", "lines", "--from", inputs, "--with", "effects="+effects, "--with",
			"waits="+strings.Join(waits, ","))
		for _, key := range waits {
			line := regexp.MustCompile(`(?m)^([0-9]+) ` + key + "$")
			m.until(key+" is worked", func() bool {
				content, _ := os.ReadFile(effects) // it may not be there yet
				all := line.FindAllSubmatch(content, -1)
				if all == nil {
					return false
				}
				pid, err := strconv.Atoi(string(all[len(all)-1][1]))
				must.OK(t, err)
				return syscall.Kill(pid, syscall.SIGKILL) == nil // it may have died with the kill of another item
			})
			must.OK(t, os.WriteFile(effects+" "+key, nil, 0o600)) // it no longer waits
		}
		if code := m.exit(p); code != 0 {
			t.Fatalf("exit %d\n%s%s", code, p.stdout.String(), p.stderr.String())
		}
		took := time.Since(began)
		var done, items, crashed int
		must.OK(t, m.database().QueryRow(`SELECT count(*) FILTER (WHERE outcome = 0), count(DISTINCT item_id) FILTER (WHERE
			outcome = 0), count(*) FILTER (WHERE outcome = 8) FROM ledger_attempts`).Scan(&done, &items, &crashed))
		if done != n || items != n || crashed == 0 || m.count("state:done") != n {
			t.Errorf("%d attempts have done %d of %d items, %d attempts crashed", done, items, n, crashed)
		}
		content, err := os.ReadFile(effects)
		must.OK(t, err)
		worked := map[string]int{}
		for line := range strings.Lines(string(content)) {
			_, key, _ := strings.Cut(strings.TrimSpace(line), " ")
			worked[key]++
		}
		twice := bytes.Count(content, []byte("\n")) - n
		if len(worked) != n || twice > crashed {
			t.Errorf("%d of %d items were worked, %d more than once, and %d attempts crashed", len(worked), n, twice, crashed)
		}
		m.run(failure.ExitOK, "db", "verify")
		t.Logf("%d items in %s, %.0f/s; %d attempts crashed, %d effects came twice", n, took.Round(time.Millisecond),
			float64(n)/took.Seconds(), crashed, twice)
	})
}

// addPython adds the plugin of testdata/python.
func (m *machine) addPython() {
	m.t.Helper()
	dir := filepath.Join(m.t.TempDir(), "made")
	next := m.run(failure.ExitOK, "plugin", "new", "lines", "--lang", "python", "--dir", dir)
	text, err := os.ReadFile("testdata/python/plugin.py")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "src", "plugin.py"), text, 0o600)
	}
	must.OK(m.t, err)
	_, pack, _ := strings.Cut(next, "python3 -m unittest\n")
	pack, _, _ = strings.Cut(pack, "\n")
	sh := exec.Command("sh", "-c", pack)
	sh.Dir = dir
	if out, err := sh.CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v\n%s", pack, err, out)
	}
	m.run(failure.ExitOK, "plugin", "add", filepath.Join(dir, "ledgerd-plugin-lines"))
}
