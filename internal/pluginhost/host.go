package pluginhost

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Config of a Host.
type Config struct {
	Spec
	// Settings of the plugin: a JSON object, secrets included, defaults left out.
	Settings []byte
	// Kind that the plugin is started for; errors name it.
	Kind string
	// Concurrency of the plugin; 0 means the default of its description.
	Concurrency int
	// Progress gets the plugin's reports on its items. It must not block; nil means that they are dropped.
	Progress func(Progress)
	// LastOutput reads the output of the last completed round of an item, for plugins that ask for it;
	// see ledger.Ledger. Nil means that they get none.
	LastOutput func(ctx context.Context, id int64) ([]byte, error)
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
	log    *slog.Logger
	times  times
	config *Config
	life   context.Context    // of starts; ends with Close
	end    context.CancelFunc // ends life
	ends   sync.WaitGroup     // the goroutines that Close waits for

	mu       sync.Mutex
	setup    *setup // of the newest process
	policy   ledger.Kind
	session  *session // nil while no process is ready
	draining bool     // items are handed back
	reading  int      // items that wait for their earlier output
	starting bool     // a goroutine of restart runs
	closed   bool
	breaker  breaker
	started  int       // processes that were ready
	restarts int       // see Restarts
	code     string    // of the newest crash
	reason   string    // of it, in words
	failedAt time.Time // when it was
}

// times are the bounds that the tests shorten.
type times struct {
	tend         time.Duration // between two looks at the items of the process
	starved      time.Duration // without credits, before a warning
	overrun      time.Duration // after the end of an item's context, before the process is killed
	healthEvery  time.Duration // between two health checks
	healthWait   time.Duration // for the answer
	healthMisses int           // checks in a row without an answer, until the process is killed
}

var defaultTimes = times{
	tend: 100 * time.Millisecond, starved: 10 * time.Second, overrun: 5 * time.Second,
	healthEvery: 10 * time.Second, healthWait: 5 * time.Second, healthMisses: 3,
}

// Bounds of what a process may have at a time, also if it asks for more: each item is leased, and
// in memory here.
const (
	maxInHand = 10_000  // items, however many credits it grants
	maxPlaces = 100_000 // items, however high its concurrency is; the config allows as many
)

const startAgain = 100 * time.Millisecond // between two looks at a process that is starting

var (
	_ worker.Governor = (*Host)(nil)
	_ worker.Defined  = (*Host)(nil)

	_ worker.Supervised = (*Host)(nil)
)

// Start starts the plugin and gives it its config. Errors: *pluginproc.StartError, *CallError,
// *settings.Error and *ConfigError for settings that do not fit, *OpenError.
func Start(ctx context.Context, c Config) (*Host, error) { return start(ctx, c, defaultTimes) }

func start(ctx context.Context, c Config, t times) (*Host, error) {
	h := &Host{config: &c, log: cmp.Or(c.Logger, slog.Default()).With("plugin", c.Place.Name), times: t}
	h.life, h.end = context.WithCancel(context.WithoutCancel(ctx))
	p, s, err := launch(ctx, &c)
	if err == nil {
		err = h.adopt(p, s)
	}
	if err != nil {
		h.end()
		return nil, err
	}
	return h, nil
}

// About is the plugin's description of itself.
func (h *Host) About() *Description {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.setup.about
}

// Spec is the program that the host starts, and how.
func (h *Host) Spec() Spec { return h.config.Spec }

// Definition implements worker.Defined: it names the plugin and its config, without secrets.
func (h *Host) Definition() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.setup.definition
}

// Config implements worker.Defined: the settings in force, without secrets.
func (h *Host) Config() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.setup.config
}

// Settings are the settings of the plugin, secrets included.
func (h *Host) Settings() []byte { return h.config.Settings }

// PID is the number of the current process, 0 if there is none.
func (h *Host) PID() int {
	if s := h.current(); s != nil {
		return s.proc.PID()
	}
	return 0
}

// Restarts is the number of processes that were started after another one had ended.
func (h *Host) Restarts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restarts
}

func (h *Host) current() *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// Govern implements worker.Governor.
func (h *Host) Govern(policy ledger.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policy = policy
}

// Limit implements worker.Governor: how many items the process may have. If the kind has on_lost = doubt, only as many
// as can begin at once. While there is no process, Limit starts one when its time has come.
func (h *Host) Limit() (int, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.session == nil {
		return 0, h.restart(time.Now())
	}
	n := maxOf(h.session.work.Len(), h.session.work.Stream.Credits(), h.session.setup.places)
	if h.policy.OnLost == ledger.OnLostDoubt {
		n = min(n, h.session.setup.places)
	}
	if h.breaker.probing {
		n = min(n, 1)
	}
	return n, time.Time{}
}

// maxOf is how many items a process may have: those that it has and its credits, but at least as many as its places.
func maxOf(inHand, credits, places int) int {
	return max(min(inHand+credits, maxInHand), min(places, maxPlaces))
}

// Stalled implements worker.Governor: until when the breaker is open.
func (h *Host) Stalled() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.breaker.open(time.Now())
}

// restart starts a process if its time has come, and returns when to look again. The caller holds mu.
func (h *Host) restart(now time.Time) time.Time {
	if h.closed || now.Before(h.breaker.next) {
		return h.breaker.next
	}
	if !h.starting {
		h.starting = true
		h.ends.Go(func() {
			p, s, err := launch(h.life, h.config)
			if err == nil {
				err = h.adopt(p, s)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			h.starting = false
			if err != nil && !h.closed {
				h.log.Error("the plugin does not start again", "error", err)
				h.crashed(codeOf(err), err)
			}
		})
	}
	return now.Add(startAgain)
}

// codeOf is the code of an error of a start, see health.Plugin.
func codeOf(err error) string {
	if known, ok := errors.AsType[interface {
		error
		Code() string
	}](err); ok {
		return known.Code()
	}
	return "error"
}

// Emits returns the kinds of the items that the plugin may add, with those that its config permits.
func (h *Host) Emits() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.setup.emits
}

// Plugin implements worker.Supervised.
func (h *Host) Plugin() health.Plugin {
	pid := h.PID()
	h.mu.Lock()
	defer h.mu.Unlock()
	p := health.Plugin{Version: h.setup.about.Version, State: health.Running, Restarts: h.restarts, Code: h.code,
		Error: h.reason, ErrorAt: h.failedAt, RSS: pluginproc.RSS(pid)}
	if h.session == nil {
		p.State = health.Restarting
	}
	if !h.breaker.open(time.Now()).IsZero() {
		p.State = health.Crashing
	}
	return p
}

// crashed notes a crash. The caller holds mu.
func (h *Host) crashed(code string, why error) {
	h.code, h.failedAt = code, time.Now().UTC().Truncate(time.Second)
	text := why.Error()
	if broken, is := status.FromError(why); is {
		text = "its stream broke: " + broken.Code().String() // the plugin's own text may be about an item
	}
	h.reason = health.OneLine(h.setup.hide.Hide(text))
	if h.breaker.crashed(time.Now()) {
		h.log.Error("the plugin crashes again and again: nothing is given to it for a while", "until", h.breaker.next)
	}
}

// adopt opens the stream of a configured process and makes it the current process. If the host is closed by now, it
// kills the process. After an error the process is gone.
func (h *Host) adopt(p *pluginproc.Proc, setup *setup) error {
	s := &session{host: h, proc: p, setup: setup}
	if err := s.open(p); err != nil {
		p.Kill()
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		h.ends.Go(p.Kill)
		return nil
	}
	h.session, h.setup = s, setup
	h.ends.Go(s.tend)
	if h.started++; h.started > 1 {
		h.restarts++
	}
	return nil
}

// Handle implements worker.Handler.
func (h *Host) Handle(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result)) {
	t := &task{Of: given{lease, settle}, Item: item(ctx, lease), Context: ctx}
	h.mu.Lock()
	wants := !h.closed && h.wantsPrevious(lease)
	if wants {
		h.reading++
		h.ends.Go(func() { h.handWithPrevious(t) })
	}
	h.mu.Unlock()
	if !wants {
		h.hand(t)
	}
}

// wantsPrevious reports whether the plugin asks for the output of an item's last completed round, and there may be such
// a round. The caller holds mu.
func (h *Host) wantsPrevious(lease *ledger.Lease) bool {
	// In a restored ledger, attempts do not begin at 1.
	isFirst := lease.Attempt == 1 || lease.First() && lease.Round == firstRound
	return h.setup.about.previous && h.config.LastOutput != nil && !isFirst
}

const firstRound = "1"

const previousTime = 10 * time.Second // for reading the output of the last completed round

// handWithPrevious hands an item to the process with the output of its last completed round.
func (h *Host) handWithPrevious(t *task) {
	ctx, cancel := context.WithTimeout(t.Context, previousTime)
	defer cancel()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reading--
	}()
	var err error
	if t.Item.Previous, err = h.config.LastOutput(ctx, t.Item.Id); err != nil {
		h.log.Warn("what an item has put out before cannot be read: it is handed back", "item", t.Item.Id, "error", err)
		t.Of.settle(ledger.Release())
		return
	}
	h.hand(t)
}

// hand hands an item to the process, or back to the worker if there is none.
func (h *Host) hand(t *task) {
	h.mu.Lock()
	s := h.session
	if h.draining {
		s = nil
	}
	if s != nil {
		t.Timeout = h.policy.Timeout
		t.Item.TimeoutMs = t.Timeout.Milliseconds()
		s.work.Add(t)
	}
	h.mu.Unlock()
	if s == nil {
		t.Of.settle(ledger.Release())
	}
}

// HandBack implements worker.Governor. Items of the process, and those that wait for their earlier output, do not begin
// after this call.
func (h *Host) HandBack(grace time.Duration) {
	h.mu.Lock()
	s := h.session
	has := s != nil && s.work.Len() > 0
	h.draining = has || h.reading > 0
	h.mu.Unlock()
	if has {
		s.release(s.work.Unsent())
		s.proc.Drain(grace)
	}
}

// Close stops the process. Its items get the grace to end. Close returns when the process is gone, at
// most about ten seconds after the grace.
func (h *Host) Close(grace time.Duration) {
	h.mu.Lock()
	h.closed = true
	s := h.session
	h.mu.Unlock()
	h.end()
	if s != nil {
		s.proc.Stop(context.Background(), grace)
	}
	h.ends.Wait()
}
