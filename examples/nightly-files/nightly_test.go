package nightlyfiles

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/exampletest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/sdk"
)

const pluginName = "nightly"

// gated is a plugin that notes in a file what it does to which of its files, and for which ledgerd.
// It goes no further than the note of the start until a gate is open.
func gated() *sdk.Plugin {
	type config struct {
		Effects string `json:"effects" schema:"required" doc:"file to which every effect is appended"`
		Gate    string `json:"gate" schema:"required" doc:"file whose appearance lets the work go on"`
	}
	type in struct {
		Path string `json:"path" input:"file" doc:"the file"`
	}
	note := func(cfg *config, what, path string) error {
		f, err := os.OpenFile(cfg.Effects, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = fmt.Fprintln(f, what, os.Getppid(), path)
		return err
	}
	return sdk.New(pluginName, "0.1.0", func(ctx context.Context, cfg *config, it sdk.Item[in]) (string, error) {
		if err := note(cfg, "start", it.Payload.Path); err != nil {
			return "", err
		}
		tick := time.NewTicker(50 * time.Millisecond) // also how long the work takes
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
			if _, err := os.Stat(cfg.Gate); err == nil {
				return "", note(cfg, "done", it.Payload.Path)
			}
		}
	})
}

// machines are several machines that share a ledger and an inbox.
type machines struct {
	t                    *testing.T
	address, dir, zone   string
	inbox, effects, gate string
}

func newMachines(t *testing.T, address string, files int) *machines {
	dir := t.TempDir()
	m := &machines{t: t, address: address, dir: dir, zone: noonZone(), inbox: filepath.Join(dir, "inbox"),
		effects: filepath.Join(dir, "effects"), gate: filepath.Join(dir, "gate")}
	if err := os.MkdirAll(filepath.Join(dir, "plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.inbox, 0o700); err != nil {
		t.Fatal(err)
	}
	yesterday := time.Now().Add(-24 * time.Hour)
	for i := range files {
		path := filepath.Join(m.inbox, fmt.Sprintf("%03d.csv", i))
		if err := os.WriteFile(path, []byte("name\nAda\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, yesterday, yesterday); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(dir, "plugins", "ledgerd-plugin-"+pluginName)
	if os.Link(self, plugin) != nil { // another file system
		content, err := os.ReadFile(self)
		if err == nil {
			err = os.WriteFile(plugin, content, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// noonZone is a time zone in which no day ends while a test runs.
func noonZone() string {
	return fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12) // its sign is the opposite of the usual one
}

// start starts ledgerd.
func (m *machines) start(args ...string) *exampletest.Program {
	m.t.Helper()
	cmd := exec.Command(programs.Path(m.t, "ledgerd"), args...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "LEDGERD_DB="+m.address, "HOME="+m.dir, "XDG_DATA_HOME="+m.dir)
	return exampletest.Start(m.t, cmd)
}

// cron is the line that every machine has in its table.
func (m *machines) cron() *exampletest.Program {
	m.t.Helper()
	return m.start(append([]string{"run", pluginName, "inbox", "--every", "day", "--zone", m.zone, "-o", "json"},
		m.with()...)...)
}

func (m *machines) with() []string {
	return []string{"--plugin-dir", filepath.Join(m.dir, "plugins"), "--with", "effects=" + m.effects, "--with", "gate=" +
		m.gate, "-j", "4"}
}

// noted are the effects so far: what was done to which file, and by whom.
func (m *machines) noted(what string) (byFile, byProcess map[string]int) {
	m.t.Helper()
	text, err := os.ReadFile(m.effects)
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	byFile, byProcess = map[string]int{}, map[string]int{}
	for _, line := range strings.Split(string(text), "\n") {
		if part := strings.SplitN(line, " ", 3); len(part) == 3 && part[0] == what {
			byProcess[part[1]]++
			byFile[part[2]]++
		}
	}
	return byFile, byProcess
}

// begun waits until so many machines have begun with a file.
func (m *machines) begun(n int) {
	m.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for late := time.After(exampletest.Patience); ; {
		if _, by := m.noted("start"); len(by) == n {
			return
		}
		select {
		case <-look.C:
		case <-late:
			m.t.Fatalf("%d machines have not begun", n)
		}
	}
}

// open opens the gate.
func (m *machines) open() {
	m.t.Helper()
	if err := os.WriteFile(m.gate, nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// sum is what a run ends with, as far as these tests look.
type sum struct {
	Inputs struct{ Total, Done int }
}

// ends waits for the end of runs; all of them must have seen every file done.
func (m *machines) ends(files int, runs ...*exampletest.Program) {
	m.t.Helper()
	for _, p := range runs {
		var s sum
		if text := p.End(m.t, 0); json.Unmarshal([]byte(text), &s) != nil || s.Inputs.Total != files ||
			s.Inputs.Done != files {
			m.t.Errorf("a run ended with %s", text)
		}
	}
}

// TestNight: four machines start at the same instant on a day without any work yet, though
// everything was done the day before. Each file is worked once, all take their share, and when they
// are started once more there is nothing to do.
func TestNight(t *testing.T) {
	const files, nodes = 500, 4 // so many that what lies in buffers, half a second of work, is little
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		m := newMachines(t, address, files)
		m.dayBefore()
		var runs []*exampletest.Program
		for range nodes {
			runs = append(runs, m.cron())
		}
		m.begun(nodes)
		m.open()
		m.ends(files, runs...)
		done, by := m.noted("done")
		if len(done) != files {
			t.Errorf("%d of %d files were worked", len(done), files)
		}
		for file, times := range done {
			if times != 1 {
				t.Errorf("%s was worked %d times", file, times)
			}
		}
		t.Logf("files by machine: %v", by)
		for machine, n := range by {
			if n < files/50 { // a machine that gets no more than its first claim has 4
				t.Errorf("machine %s worked %d of %d files, less than one in 50", machine, n, files)
			}
		}

		m.ends(files, m.cron(), m.cron())
		_, by = m.noted("start")
		if started := total(by); started != files {
			t.Errorf("%d files were begun, want %d: a second start on the same day works nothing", started, files)
		}
		m.completions(pluginName, 2)
		m.start("db", "verify").End(t, 0)
	})
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// dayBefore has everything done by a clock that is a day behind.
func (m *machines) dayBefore() {
	m.t.Helper()
	l, closeLedger, err := openLedger(m.t.Context(), m.address, func() time.Time {
		return time.Now().Add(-24 * time.Hour)
	})
	if err != nil {
		m.t.Fatal(err)
	}
	defer closeLedger()
	entries, err := os.ReadDir(m.inbox)
	if err != nil {
		m.t.Fatal(err)
	}
	var items []ledger.NewItem
	for _, e := range entries {
		path := filepath.Join(m.inbox, e.Name())
		items = append(items, ledger.NewItem{Kind: pluginName, Key: path, Every: "day", Zone: m.zone,
			Payload: ledger.JSON(map[string]string{"path": path})})
	}
	if _, err := l.Add(m.t.Context(), items...); err != nil {
		m.t.Fatal(err)
	}
	leases, err := l.Claim(m.t.Context(), ledger.Claim{Kind: pluginName, Agent: "the night before",
		Limit: bounds.MaxBatch})
	if err != nil || len(leases) != len(items) {
		m.t.Fatalf("%d of %d claimed: %v", len(leases), len(items), err)
	}
	for _, lease := range leases {
		if err := l.Finish(m.t.Context(), ledger.Ending{Lease: lease, Result: ledger.Done(nil)})[0]; err != nil {
			m.t.Fatal(err)
		}
	}
}

// completions asserts that every item of a kind was completed in so many rounds, and once in each. It
// returns how many items there are, and how their attempts ended.
func (m *machines) completions(kind string, rounds int) (items int, ended map[ledger.Outcome]int) {
	m.t.Helper()
	l, closeLedger, err := openLedger(m.t.Context(), m.address, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	defer closeLedger()
	ended = map[ledger.Outcome]int{}
	for it, err := range l.List(m.t.Context(), ledger.Filter{Kinds: []string{kind}}, 0) {
		if err != nil {
			m.t.Fatal(err)
		}
		items++
		attempts, err := l.Attempts(m.t.Context(), it.ID)
		if err != nil {
			m.t.Fatal(err)
		}
		completed := map[string]int{}
		for _, a := range attempts {
			ended[a.Outcome]++
			if a.Outcome.Completed() {
				completed[a.Round]++
			}
		}
		for round, times := range completed {
			if times != 1 {
				m.t.Errorf("%s was completed %d times in round %s", it.Key, times, round)
			}
		}
		if len(completed) != rounds {
			m.t.Errorf("%s was completed in %d rounds, want %d", it.Key, len(completed), rounds)
		}
	}
	return items, ended
}

// TestFileCSV: the line of the README. Every file has one attempt, however many start.
func TestFileCSV(t *testing.T) {
	const files = 30
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		m := newMachines(t, address, files)
		for range 2 {
			var runs []*exampletest.Program
			for range 4 {
				runs = append(runs, m.start("run", "filecsv", "./inbox", "--every", "day", "--zone", m.zone, "-o", "json"))
			}
			m.ends(files, runs...)
		}
		items, ended := m.completions("filecsv", 1)
		if items != files || len(ended) != 1 || ended[ledger.OutcomeDone] != files {
			t.Errorf("%d items, attempts %v, want %d done", items, ended, files)
		}
	})
}

// TestKilledMachine: one of three machines is killed in the middle. The others complete everything.
func TestKilledMachine(t *testing.T) {
	const files = 60
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		m := newMachines(t, address, files)
		runs := []*exampletest.Program{m.cron(), m.cron()}
		m.begun(2)
		victim := m.start(append([]string{"work", "--kind", pluginName, "--lease", "5s"}, m.with()...)...)
		m.begun(3)
		if err := victim.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		m.open()
		m.ends(files, runs...)
		if done, _ := m.noted("done"); len(done) != files {
			t.Errorf("%d of %d files were worked", len(done), files)
		}
		if _, ended := m.completions(pluginName, 1); ended[ledger.OutcomeLost] == 0 {
			t.Error("the one that was killed held nothing")
		}
		m.start("db", "verify").End(t, 0)
	})
}
