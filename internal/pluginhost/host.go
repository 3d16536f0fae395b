package pluginhost

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

const (
	restartBase  = 500 * time.Millisecond
	restartMost  = time.Minute
	crashWindow  = 10 * time.Minute
	breakerAt    = 5 // crashes in crashWindow
	breakerPause = 5 * time.Minute
	overrun      = 5 * time.Second // after the end of an item's context, before the process is killed
	tendEvery    = time.Second
	healthEvery  = 10 * time.Second
	healthWait   = 5 * time.Second
	healthMisses = 3
	startAgain   = 100 * time.Millisecond // between two looks at a process that is starting
)

// Config of a Host.
type Config struct {
	Spec
	// Settings of the plugin: a JSON object, secrets included, defaults left out.
	Settings []byte
	// Concurrency replaces the plugin's own; 0 means it does not.
	Concurrency int
	// Progress gets what the plugin says of items that it has; it must not block.
	Progress func(Progress)
}

// Progress of one item.
type Progress struct {
	ItemID      int64
	Key         string
	Done, Total int64 // Total 0: not known
	Unit        string
}

// Host works the items of one kind with one plugin. It is a worker.Governor.
type Host struct {
	config Config
	about  *Description
	setup  *configured
	emits  map[string]bool
	log    *slog.Logger

	mu       sync.Mutex
	policy   ledger.Kind
	session  *session // nil while no process is ready
	starting bool
	closed   bool
	next     time.Time   // no start before it
	crashes  []time.Time // of the last crashWindow
	probing  bool        // after the breaker: one item at a time until one has ended
	ends     sync.WaitGroup
}

var _ worker.Governor = (*Host)(nil)

// Start starts the plugin and gives it its config. Errors: *pluginproc.StartError,
// *settings.Error and *ConfigError for settings that do not fit.
func Start(ctx context.Context, c Config) (*Host, error) {
	h := &Host{config: c, log: c.Logger, emits: map[string]bool{}}
	if h.log == nil {
		h.log = slog.Default()
	}
	h.log = h.log.With("plugin", c.Place.Name)
	p, d, err := launch(ctx, &h.config.Spec, nil)
	if err != nil {
		return nil, err
	}
	h.about = d
	if h.setup, err = d.configure(c.Settings, c.Concurrency); err != nil {
		p.Kill()
		return nil, err
	}
	problems, err := p.Configure(ctx, h.setup.request)
	if err == nil && len(problems) > 0 {
		err = &ConfigError{d.Name, problems}
	}
	if err == nil {
		err = h.adopt(p)
	}
	if err != nil {
		p.Kill()
		return nil, errors.Join(err, crashReport(p.Err()))
	}
	for _, kind := range d.Emits {
		h.emits[kind] = true
	}
	return h, nil
}

// About is what the plugin says of itself.
func (h *Host) About() *Description { return h.about }

// Definition names the plugin and its config, without secrets; see ledger.Kind.
func (h *Host) Definition() string { return h.setup.definition }

// PID is the number of the process that works now, 0 if there is none.
func (h *Host) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		return 0
	}
	return h.session.proc.PID()
}

// Check has the plugin look whether what it depends on is there; the problem is what it says.
func (h *Host) Check(ctx context.Context) (problem string, err error) {
	h.mu.Lock()
	s := h.session
	h.mu.Unlock()
	if s == nil {
		return "the plugin is not running", nil
	}
	return s.proc.CheckHealth(ctx)
}

// Govern implements worker.Governor.
func (h *Host) Govern(policy ledger.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policy = policy
}

// Limit implements worker.Governor: what the process has, and as many more as it takes. Items
// that must not be begun twice are sent no earlier than they can begin.
func (h *Host) Limit() (int, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		return 0, h.restart(time.Now())
	}
	n := len(h.session.tasks) + h.session.stream.Credits()
	if h.policy.OnLost == ledger.OnLostDoubt {
		concurrency := h.about.Concurrency
		if h.config.Concurrency > 0 {
			concurrency = h.config.Concurrency
		}
		n = min(n, concurrency)
	}
	if h.probing {
		n = min(n, 1)
	}
	return n, time.Time{}
}

// restart starts a process if it is time to, and says when to look again. The caller holds mu.
func (h *Host) restart(now time.Time) time.Time {
	if h.closed || now.Before(h.next) {
		return h.next
	}
	if !h.starting {
		h.starting = true
		h.ends.Add(1)
		go func() {
			defer h.ends.Done()
			p, _, err := launch(context.Background(), &h.config.Spec, h.setup)
			if err == nil {
				err = h.adopt(p)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.starting = false
			if err != nil {
				h.log.Error("the plugin does not start", "error", err)
				h.crashed(time.Now())
			}
		}()
	}
	return now.Add(startAgain)
}

// crashed takes note of a crash and puts off the next start. The caller holds mu.
func (h *Host) crashed(now time.Time) {
	recent := h.crashes[:0]
	for _, t := range h.crashes {
		if now.Sub(t) < crashWindow {
			recent = append(recent, t)
		}
	}
	h.crashes = append(recent, now)
	n := len(h.crashes)
	pause := min(restartMost, restartBase<<min(n-1, 10))
	h.next = now.Add(pause/2 + rand.N(pause/2))
	if n >= breakerAt {
		h.next, h.probing = now.Add(breakerPause), true
		h.crashes = h.crashes[:0]
		h.log.Error("the plugin crashes again and again; its kind is not worked for a while", "crashes", n, "until", h.next)
	}
}

// adopt opens the stream of a configured process and makes it the one that works.
func (h *Host) adopt(p *pluginproc.Proc) error {
	s := &session{host: h, proc: p, tasks: map[taskKey]*task{}}
	stream, err := p.Open(pluginproc.Events{Results: s.results, Progress: s.progress})
	if err != nil {
		p.Kill()
		return err
	}
	s.stream = stream
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		p.Kill()
		return nil
	}
	h.session = s
	h.ends.Add(1)
	h.mu.Unlock()
	go func() {
		defer h.ends.Done()
		s.tend()
	}()
	return nil
}

// Handle implements worker.Handler.
func (h *Host) Handle(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result)) {
	h.mu.Lock()
	s := h.session
	if s == nil {
		h.mu.Unlock()
		settle(ledger.Release())
		return
	}
	t := s.add(ctx, lease, settle, h.policy.Timeout)
	h.mu.Unlock()
	if err := s.stream.Send([]*wire.Item{item(lease, h.policy.Timeout)}); err != nil {
		// It ended, or the worker asked for the limit before others used it up.
		s.settle(t.key, ledger.Release())
		return
	}
	t.watch(s)
}

// Close stops the process: what it has gets grace to end, then it goes. It returns when the
// process is gone, at most grace and about ten seconds later.
func (h *Host) Close(grace time.Duration) {
	h.mu.Lock()
	h.closed = true
	s := h.session
	h.mu.Unlock()
	if s != nil {
		s.proc.Stop(context.Background(), grace)
	}
	h.ends.Wait()
}
