package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	work    workFlags
	listen  string
	migrate bool
}

func ServeCommand(a *app.App) *cobra.Command {
	var s serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Fill the ledger from the sources of the config and work it, until it is stopped",
		GroupID: app.GroupWork, Args: app.Arguments(0, 0),
		Long: `Adds items from the sources of the config, works the kinds that the config names, and answers /livez,
/readyz and /metrics. The kinds of its sources, and those that their plugins emit, are worked too. If the
config names no kind, every kind of the ledger is worked. Any number of daemons may serve one ledger; each
source is looked at by one of them.

At SIGTERM or Ctrl-C it claims nothing more, finishes the running items (see grace), and exits with 0. The
second time it stops at once and exits with 143 or 130; unfinished items are worked again. At SIGHUP it
reads the config anew; if the new config is wrong, it logs the mistake and keeps the old one. If a kind
has new settings here, and another process works it with old ones, this daemon waits until that process
has stopped or has the new ones too. With listen in [api] of the config it serves the HTTP API as
well: docs/api.md; with serve = true in [ui] also the pages: docs/ui.md. A plugin is replaced while the daemon runs
(ledgerd plugin add). The log goes to stderr: text on a terminal, otherwise one JSON object per line. For systemd:
docs/operations.md.`,
		Example: "  ledgerd serve\n  ledgerd serve --config /etc/ledgerd/ledgerd.toml --migrate",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), a, s)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&s.migrate, "migrate", false, "bring the schema of a ledger on Postgres up to date first; SQLite files "+
		"are anyway, after a copy")
	f.StringVar(&s.listen, "listen", "", "`address` of /livez, /readyz and /metrics, host:port; with \"\": none")
	a.PluginDirFlag(f)
	f.Var(&s.work.shard, "shard", "work only part i of n, from 0")
	f.Var(&s.work.lease, "lease", "how long an item stays with a daemon that is not heard of, 5s to 24h")
	f.Var(&s.work.grace, "grace", "how long what runs may go on once it is to stop")
	for _, name := range []string{"listen", "shard", "lease", "grace"} {
		app.FromConfig(f, name)
	}
	return cmd
}

// server is one call of serve.
type server struct {
	*app.App
	flags   serveFlags
	ledger  *app.Database
	pool    *runner.Pool
	sources daemon.Sources
	metrics *daemon.Metrics
	health  *daemon.Health
	api     *api.API                      // nil: it is not served
	shown   atomic.Pointer[config.Config] // the newest config, for the pages
	name    string                        // the agent; it also holds the locks of sources
	life    context.Context               // ends when the daemon has to stop, or cannot go on
	hup     chan os.Signal                // SIGHUP: read the config again
	serving bool                          // the log has the line "serving"
	waiting string                        // names of sources whose kinds are not known yet
	again   *time.Timer                   // for a reload that is tried again; nil: none is
	wrong   int                           // how often it was tried again because of mistakes

	trouble  string    // newest error of renewSources, without its digits; "": it succeeded
	troubled time.Time // when that was logged
}

// serve runs a daemon until ctx ends.
func serve(ctx context.Context, a *app.App, flags serveFlags) error {
	a.Log, a.Notices = a.DaemonLogger(), nil
	s := &server{App: a, flags: flags, hup: make(chan os.Signal, 1)}
	signal.Notify(s.hup, syscall.SIGHUP)
	defer signal.Stop(s.hup)
	var at net.Listener // nil without --listen
	if flags.listen != "" {
		var err error
		if at, err = listenAt(ctx, flags.listen); err != nil {
			return err
		}
	}
	front := new(daemon.Front)
	defer s.answer(ctx, at, front)()
	l, err := openChecked(ctx, a, flags.migrate)
	if err != nil {
		return err
	}
	defer l.Close()
	s.ledger = l
	o := flags.work.options(ctx, a)
	o.Name, o.Wanted, o.Ended, o.Changed = cmp.Or(a.Config.Agent, kinds.AgentName()), s.kinds, s.attempt, s.begin
	plugins := func() map[string]daemon.PluginState { return s.pool.Plugins() } // the pool is made below
	s.metrics = daemon.NewMetrics(version.String(), l.Ledger, daemon.State{Plugins: plugins, Sources: s.sources.Status,
		Busy: l.Store.Busy})
	defer s.metrics.Close()
	o.Meter, o.Lends = s.metrics, a.Config.API.Listen != ""
	s.pool = runner.NewPool(&a.Local, l.Ledger, o)
	defer s.pool.Close()
	register := func() error { return app.FieldError(s.pool.Register(ctx), "invalid", nil) }
	if err := app.WhenReachable(ctx, a.Log, register); err != nil {
		return err
	}
	s.name = s.pool.Agent
	s.health = &daemon.Health{Locks: locks.New(l.Ledger), Agent: s.name, Kinds: s.pool.Problems, Sources: s.sources.Status,
		Log: s.Log, Metrics: s.metrics.Handler()}
	front.Use(s.health.Handler())
	endAPI, err := s.serveAPI(ctx)
	if err != nil {
		return err
	}
	defer endAPI()
	var endLife context.CancelFunc
	s.life, endLife = context.WithCancel(ctx)
	defer endLife()
	defer s.attend(ctx)()
	err = app.FieldError(s.pool.Run(s.life), "invalid", nil)
	endLife() // the pool ends by itself if the ledger cannot be worked any more
	s.waitForSources()
	s.Log.Info("stopped", "agent", s.name)
	if err == nil && a.Hard.Err() != nil {
		return failure.Status(128 + a.Got.Load())
	}
	return err
}

// checkTime bounds how long a daemon waits for plugins to check the config. If a plugin refuses it later, its kind is
// not worked.
const checkTime = 5 * time.Second

// checkConfig returns the mistakes of the config, checked with the kinds of the ledger. It adds loadErr, the error of
// loading the config.
func checkConfig(ctx context.Context, a *app.App, kinds []ledger.Kind, loadErr error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, fmt.Errorf("no answer within %s", checkTime))
	defer cancel()
	return config.Mistakes(a.Config.Check(a.WorldOf(ctx, kinds), loadErr))
}

// begin starts the sources of the kinds that are worked now, and logs once that the daemon serves. The pool calls it
// whenever its kinds have changed.
func (s *server) begin(ctx context.Context) error {
	err := s.renewSources(ctx)
	if s.serving {
		return err
	}
	s.serving = true
	s.Log.Info("serving", "version", version.String(), "pid", os.Getpid(), "agent", s.name, "kinds", s.pool.KindsHere(),
		"sources", len(s.Config.Sources))
	return err
}

// openChecked opens the ledger of a config without mistakes.
func openChecked(ctx context.Context, a *app.App, migrate bool) (*app.Database, error) {
	known, unread := a.ReadKinds(ctx)
	mistakes := checkConfig(ctx, a, known, nil)
	if mistakes != nil && (unread == nil || errors.Is(unread, ledger.ErrNoLedger)) {
		return nil, mistakes
	}
	l, err := openToServe(ctx, a, migrate)
	if err != nil || mistakes == nil {
		return l, err
	}
	// The kinds could not be read before, so kinds that only the ledger has looked like mistakes.
	if known, err = l.Kinds(ctx); err == nil {
		err = checkConfig(ctx, a, known, nil)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// openToServe opens the ledger, or makes it, and logs which one.
func openToServe(ctx context.Context, a *app.App, migrate bool) (*app.Database, error) {
	at, err := a.Address()
	if err != nil {
		return nil, err
	}
	var l *app.Database
	err = app.WhenReachable(ctx, a.Log, func() (err error) {
		l, err = a.OpenAt(ctx, at, app.ToWork)
		return err
	})
	switch {
	case errors.Is(err, ledger.ErrNoLedger):
		l, err = a.OpenAt(ctx, at, app.ToMake)
	case errors.Is(err, ledger.ErrSchema) && migrate:
		m, failed := at.Migrate(ctx)
		if failed != nil {
			return nil, a.ExplainOpen(at, failed)
		}
		a.LogMigrated(at, &m)
		l, err = a.OpenAt(ctx, at, app.ToWork)
	}
	if err != nil {
		return nil, err
	}
	a.LogMigrated(at, l.Migrated)
	a.Log.Info("ledger", "ledger", at.String(), "new", l.IsNew, "config", a.Config.File)
	logWarnings(a)
	return l, nil
}

// logWarnings logs the warnings of the config.
func logWarnings(a *app.App) {
	for _, w := range a.Config.Warnings {
		a.Log.Warn("config: "+w.Message, "at", w.Where(), "hint", w.Hint)
	}
}

// kinds returns the kinds to work: the kinds that the config names, and kinds of the ledger that their plugins emit. If
// the config names none, it returns all kinds of the ledger.
func (s *server) kinds(ctx context.Context) ([]string, error) {
	known, err := runner.KindNames(ctx, s.ledger.Ledger)
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(s.Config.Kinds))
	for _, src := range s.Config.Sources {
		names = append(names, src.Kind)
	}
	if len(names) == 0 {
		return known, nil
	}
	for i := 0; i < len(names); i++ { // names grows: emitted kinds emit others
		for _, emitted := range s.pool.Emitted(names[i]) {
			if slices.Contains(known, emitted) && !slices.Contains(names, emitted) {
				names = append(names, emitted)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// attempt counts and logs an attempt that has ended.
func (s *server) attempt(e worker.Event) {
	if s.Program.Ended != nil {
		s.Program.Ended(e)
	}
	s.metrics.Attempt(e)
	level := slog.LevelDebug
	switch {
	case e.Round == ledger.RoundFailed || e.Round == ledger.RoundDoubt:
		level = slog.LevelWarn
	case e.Recorded.Failure():
		level = slog.LevelInfo
	}
	if !e.Accepted() || !s.Log.Enabled(s.life, level) { // the worker logs attempts that were not accepted
		return
	}
	s.Log.Log(s.life, level, "attempt ended", "kind", e.Lease.Kind, "item", e.Lease.ID, "key", e.Lease.Key, "attempt",
		e.Lease.Attempt, "agent", e.Lease.Agent, "outcome", e.Recorded, "state", e.State, "code", e.Result.Code, "error",
		shorten(e.Result.Error), "ms", e.Worked.Milliseconds())
}

// shorten cuts the text of an error for the log; the ledger has all of it.
func shorten(text string) string {
	const most = 500
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…" // not half a letter
}

// answer serves front at a listener until end is called; at may be nil.
func (s *server) answer(ctx context.Context, at net.Listener, front *daemon.Front) (end func()) {
	if at == nil {
		return func() {}
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.Log.Info("listening", "address", at.Addr().String(), "paths", "/livez /readyz /metrics")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := front.Serve(life, at); err != nil {
			s.Log.Error("the port for health and metrics is closed", "error", err)
		}
	}()
	return func() {
		stop()
		<-ended
	}
}

// attend handles SIGHUP and reports the state of the daemon to systemd, until end is called.
func (s *server) attend(ctx context.Context) (end func()) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { daemon.Watchdog(life, s.Log, s.health.Alive) })
	all.Go(func() { s.hearReload(life) })
	stopping := context.AfterFunc(ctx, func() {
		s.health.Stop()
		daemon.Notify(s.Log, daemon.Stopping)
		s.Log.Info("stopping: finishing what runs", "grace", s.flags.work.grace.Duration.String())
	})
	daemon.Notify(s.Log, daemon.Ready)
	return func() {
		stopping()
		stop()
		all.Wait()
	}
}

// sourcesTime bounds how long the end of the daemon waits for sources: a look at a file server that does not answer
// never ends.
const sourcesTime = 5 * time.Second

// waitForSources waits until the sources have stopped.
func (s *server) waitForSources() {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.sources.Wait()
	}()
	select {
	case <-stopped:
	case <-time.After(sourcesTime):
		s.Log.Warn("a source does not end; its lock ends with its time")
	case <-s.Hard.Done():
	}
}
