package pluginhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk"
)

// in describes what the plugin is to do with an item.
type in struct {
	Do string `json:"do" input:"line"`
}

type config struct {
	Answer   string `json:"answer" default:"yes"`
	Dir      string `json:"dir" doc:"gets a file per item that has begun"`
	Password string `json:"password" secret:"true"`
}

func (c *config) Validate() error {
	switch c.Answer {
	case "no":
		return errors.New(`answer: never say "no"`)
	case "quote":
		return fmt.Errorf("password: %q is too short", c.Password)
	case "hang-validate":
		select {}
	}
	return nil
}

func (c *config) Open(context.Context) error {
	switch c.Answer {
	case "crash":
		fmt.Fprintln(os.Stderr, "cannot open")
		os.Exit(4)
	case "away":
		return errors.New("the database is away")
	case "hang-open":
		select {}
	}
	return nil
}

func (c *config) Check(ctx context.Context) error {
	switch c.Answer {
	case "sick":
		return errors.New("the service is down")
	case "stuck":
		select {}
	}
	return nil
}

// gate waits until the test opens it: a file.
func (c *config) gate(ctx context.Context) error {
	tick := time.Tick(5 * time.Millisecond)
	for {
		if _, err := os.Stat(filepath.Join(c.Dir, "open")); err == nil {
			return nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// act is the plugin of these tests: it does what the item's key names, up to the first space.
func act(ctx context.Context, cfg *config, it sdk.Item[in]) (string, error) {
	if cfg.Dir != "" {
		name := fmt.Sprintf("%d.%d", it.ID, it.Attempt)
		if err := os.WriteFile(filepath.Join(cfg.Dir, name), nil, 0o600); err != nil {
			return "", err
		}
	}
	do, _, _ := strings.Cut(it.Payload.Do, " ")
	if it.Attempt == 1 && strings.HasPrefix(do, "first-") {
		do = strings.TrimPrefix(do, "first-")
	}
	switch do {
	case "die":
		fmt.Fprintln(os.Stderr, "first words", strings.Repeat("x", 20_000))
		fmt.Fprintln(os.Stderr, "last words")
		os.Exit(3)
	case "hang":
		select {}
	case "wait":
		<-ctx.Done()
		return "", context.Cause(ctx)
	case "gate":
		return cfg.Answer, cfg.gate(ctx)
	case "panic":
		panic("at the disco")
	case "skip":
		return "", sdk.Skip("nothing to do")
	case "snooze":
		return "", sdk.Snooze(time.Hour, "later")
	case "busy":
		return "", sdk.SnoozeAtMost(1, 0, sdk.Code("http_503", errors.New("later")))
	case "doubt":
		return "", sdk.Doubt(errors.New("who knows"))
	case "retry":
		return "", sdk.RetryAfter(time.Hour, errors.New("not now"))
	case "fail":
		return "half", sdk.Permanent(sdk.Code("no_way", errors.New("cannot be done")))
	case "again":
		var before string
		found, err := it.Previous(&before)
		return fmt.Sprint(before, "+", found), err
	case "emit":
		return "ok", it.Emit(sdk.Child{Kind: "child", Key: "c"})
	case "progress":
		it.Progress(3, 7, "rows")
	case "tell":
		fmt.Fprintln(os.Stderr, "to stderr:", cfg.Password)
		it.Log.Info("noted " + cfg.Password)
		return "my " + cfg.Password, sdk.Permanent(errors.New("refused for " + cfg.Password))
	case "die-telling":
		fmt.Fprintln(os.Stderr, "last words:", cfg.Password)
		os.Exit(3)
	case "log":
		it.Log.Info("noted", "thing", 1)
	}
	return cfg.Answer, nil
}

func actor() *sdk.Plugin {
	p := sdk.New("actor", "1.0.0", act)
	p.Concurrency, p.Emits, p.Previous = 4, []string{"child"}, true
	return p
}

func TestMain(m *testing.M) {
	if sdk.Started() {
		sdk.Serve(actor())
	}
	goleak.VerifyTestMain(m)
}

// place is the test binary: started as a plugin, it is the plugin actor.
func place(t testing.TB) Place {
	t.Helper()
	self, err := os.Executable()
	must.OK(t, err)
	return Place{Name: "actor", Path: self, Args: []string{"actor"}, Origin: "bundled"}
}

// password is the secret in the config of a rig.
const password = "geheim-4711"

// quickly are times for tests that wait until a process is killed.
var quickly = times{tend: 10 * time.Millisecond, starved: time.Minute, overrun: 300 * time.Millisecond,
	healthEvery: 100 * time.Millisecond, healthWait: 500 * time.Millisecond, healthMisses: 2}

// rig is a host, a ledger and the host's log.
type rig struct {
	*ledger.Ledger
	t           *testing.T
	host        *Host
	dir         string // where the plugin leaves a file per item that has begun
	log         *logBuffer
	progress    chan Progress
	failedReads atomic.Int32 // so many reads of the output of an earlier round fail
}

func newRig(t *testing.T, times times, policy ledger.Kind) *rig {
	t.Helper()
	r := &rig{
		Ledger: ledger.New(memory.New(memory.Options{}), ledger.Options{Jitter: func() float64 { return 0 }}),
		t:      t, dir: t.TempDir(), log: &logBuffer{}, progress: make(chan Progress, 10),
	}
	policy.Name = "actor"
	must.OK(t, r.SetKind(t.Context(), "test", policy))
	c := Config{
		Spec:     Spec{Place: place(t), Logger: slog.New(slog.NewTextHandler(r.log, nil))},
		Settings: ledger.JSON(map[string]any{"dir": r.dir, "password": password}),
		Progress: func(p Progress) { r.progress <- p },
		LastOutput: func(ctx context.Context, id int64) ([]byte, error) {
			if r.failedReads.Add(-1) >= 0 {
				return nil, ledger.ErrUnavailable
			}
			return r.LastOutput(ctx, id)
		},
	}
	var err error
	if r.host, err = start(t.Context(), c, times); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.host.Close(time.Second) })
	return r
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// add adds items that do what they say, and returns their ids.
func (r *rig) add(do ...string) []int64 {
	r.t.Helper()
	items := make([]ledger.NewItem, len(do))
	for i, d := range do {
		items[i] = ledger.NewItem{Kind: "actor", Key: d, Payload: ledger.JSON(in{Do: d})}
	}
	added, err := r.Add(r.t.Context(), items...)
	must.OK(r.t, err)
	ids := make([]int64, len(added))
	for i, a := range added {
		ids[i] = a.ID
	}
	return ids
}

// addMany adds n items, numbered, that do the same.
func (r *rig) addMany(n int, do string) []int64 {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s %d", do, i)
	}
	return r.add(all...)
}

func (r *rig) worker() *worker.Worker {
	r.t.Helper()
	w, err := worker.New(worker.Config{Ledger: r.Ledger, Handlers: map[string]worker.Handler{"actor": r.host},
		Grace:  time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(r.log, nil))})
	must.OK(r.t, err)
	return w
}

// drain works what there is.
func (r *rig) drain() worker.Report {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	rep, err := r.worker().Drain(ctx, 30*time.Second)
	if err != nil || ctx.Err() != nil {
		r.t.Fatalf("drain: %+v, %v, %v\n%s", rep, err, ctx.Err(), r.log)
	}
	return rep
}

// draining works what there is while the test does something else; wait waits for the end.
func (r *rig) draining() (wait func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.drain()
	}()
	return func() { <-ended }
}

func (r *rig) item(id int64) ledger.Item {
	r.t.Helper()
	it, err := r.Get(context.Background(), id)
	must.OK(r.t, err)
	return it
}

func (r *rig) attempts(id int64) []ledger.Attempt {
	r.t.Helper()
	as, err := r.Attempts(context.Background(), id)
	must.OK(r.t, err)
	return as
}

// open opens the gate.
func (r *rig) open() {
	r.t.Helper()
	must.OK(r.t, os.WriteFile(filepath.Join(r.dir, "open"), nil, 0o600))
}

// want checks state and code of items.
func (r *rig) want(state ledger.State, code string, ids ...int64) {
	r.t.Helper()
	for _, id := range ids {
		if it := r.item(id); it.State != state || it.Code != code {
			r.t.Errorf("%q is %s with code %q, want %s with %q: %s", it.Key, it.State, it.Code, state, code, it.Error)
		}
	}
}

// waitBegun waits until the plugin has begun so many attempts since the start.
func (r *rig) waitBegun(n int) {
	r.t.Helper()
	must.Eventually(r.t, fmt.Sprintf("%d attempts have begun", n), func() bool {
		entries, err := os.ReadDir(r.dir)
		return err == nil && len(entries) >= n
	})
}
