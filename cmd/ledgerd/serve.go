package main

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
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/source"
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

func (a *app) serveCommand() *cobra.Command {
	var s serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Fill the ledger from the sources of the config and work it, until it is stopped", GroupID: groupWork, Args: arguments(0, 0),
		Long: `Looks at the sources of the config, works the kinds that the config names (also those of its sources,
and those that their plugins emit; every kind of the ledger if it names none), and answers /livez, /readyz and /metrics. Any number of
daemons may serve one ledger; of a source that they all see one of them takes care.

SIGTERM and Ctrl-C: claims nothing more, finishes what runs (see grace), exit 0; once more: stops now,
exit 143 or 130. What was begun and not finished is worked again. SIGHUP: reads the config anew; if it
is wrong it says so and goes on with the old one. A kind with new settings, which another process works
with other ones, is not worked here until that one has stopped or has them too. A plugin that is added (ledgerd plugin add) takes over
while the daemon runs. It logs to stderr: text on a terminal, otherwise one
JSON object per line. For systemd: docs/operations.md.`,
		Example: "  ledgerd serve\n  ledgerd serve --config /etc/ledgerd/ledgerd.toml --migrate",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), s)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&s.migrate, "migrate", false, "bring the schema of a ledger on Postgres up to date first; SQLite files are anyway")
	f.StringVar(&s.listen, "listen", "", "`address` of /livez, /readyz and /metrics, host:port; with \"\": none")
	s.work.dirs.define(f)
	f.Var(&s.work.shard, "shard", "work only part i of n, from 0")
	f.Var(&s.work.lease, "lease", "how long an item stays with a daemon that is not heard of, 5s to 24h")
	f.Var(&s.work.grace, "grace", "how long what runs may go on once it is to stop")
	for _, name := range []string{"listen", "shard", "lease", "grace"} {
		fromConfig(f, name)
	}
	return cmd
}

// server is one call of serve.
type server struct {
	*app
	flags   serveFlags
	ledger  *opened
	crew    *crew
	sources daemon.Sources
	metrics *daemon.Metrics
	health  *daemon.Health
	name    string          // who holds the locks of sources
	life    context.Context // ends when it is to stop, or cannot go on
	hup     chan os.Signal
	serving bool   // it has said that it serves
	waiting string // sources whose kinds are not known yet
}

func (a *app) serve(ctx context.Context, flags serveFlags) error {
	a.log = a.daemonLogger()
	s := &server{app: a, flags: flags, hup: make(chan os.Signal, 1)}
	signal.Notify(s.hup, syscall.SIGHUP)
	defer signal.Stop(s.hup)
	at, err := s.listener(ctx)
	if err != nil {
		return err
	}
	front := new(daemon.Front)
	defer s.answer(ctx, at, front)()
	if err := config.Mistakes(a.checkConfig(ctx, nil)); err != nil {
		return err
	}
	l, err := a.openToServe(ctx, flags.migrate)
	if err != nil {
		return err
	}
	defer l.Close()
	s.ledger = l
	s.crew = newCrew(a, l, flags.work)
	s.name = cmp.Or(a.config.Agent, agentName())
	a.spokesman.name = s.name
	s.crew.wanted, s.crew.name, s.crew.seen, s.crew.renewed, s.crew.admitted = s.kinds, s.name, s.attempt, s.renewSources, s.begin
	defer s.crew.close()
	s.measure()
	front.Use(s.health.Handler())
	var rest context.CancelFunc
	s.life, rest = context.WithCancel(ctx)
	defer rest()
	defer s.attend(ctx)()
	_, err = s.crew.run(s.life, nil)
	rest() // the crew has ended by itself where the ledger cannot be worked any more
	s.waitForSources()
	if err == nil && a.hard.Err() != nil {
		return status(128 + a.got.Load())
	}
	return err
}

// checkTime is how long a daemon waits for plugins to look at the config. What one that answers later has
// against it keeps its kind from being worked.
const checkTime = 5 * time.Second

// checkConfig checks the config, with what is known to be wrong with it.
func (a *app) checkConfig(ctx context.Context, known error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTime, fmt.Errorf("no answer within %s", checkTime))
	defer cancel()
	return a.config.Check(a.world(ctx), known)
}

// begin has the sources looked at of kinds that have been taken up, and says once that the daemon serves.
func (s *server) begin(ctx context.Context) {
	s.renewSources(ctx)
	if s.serving {
		return
	}
	s.serving = true
	s.log.Info("serving", "version", programVersion(), "pid", os.Getpid(), "agent", s.name, "kinds", slices.Sorted(maps.Keys(s.crew.hosts)), "sources", len(s.config.Sources))
}

// openToServe opens the ledger, or makes it, and says in the log which one.
func (a *app) openToServe(ctx context.Context, migrate bool) (*opened, error) {
	at, err := a.address()
	if err != nil {
		return nil, err
	}
	l, err := a.openAt(ctx, at, false)
	isNew := errors.Is(err, ledger.ErrNoLedger)
	switch {
	case isNew:
		l, err = a.openAt(ctx, at, true)
	case errors.Is(err, ledger.ErrSchema) && migrate:
		if err = at.Migrate(ctx); err != nil {
			return nil, a.explainOpen(at, err)
		}
		a.log.Info("the schema of the ledger was brought up to date", "ledger", at.String())
		l, err = a.openAt(ctx, at, false)
	}
	if err != nil {
		return nil, err
	}
	l.isNew = isNew
	a.log.Info("ledger", "ledger", at.String(), "new", isNew, "config", a.config.File)
	a.logWarnings()
	return l, nil
}

// logWarnings says what is allowed in the config that was read, and perhaps not what was meant.
func (a *app) logWarnings() {
	for _, w := range a.config.Warnings {
		a.log.Warn("config: "+w.Message, "at", w.Where(), "hint", w.Hint)
	}
}

// listener takes the port; nil if none is wanted.
func (s *server) listener(ctx context.Context) (net.Listener, error) {
	if s.flags.listen == "" {
		return nil, nil
	}
	at, err := new(net.ListenConfig).Listen(ctx, "tcp", s.flags.listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fail(exitTaken, "port", fmt.Sprintf("%s is in use by another program", s.flags.listen),
			"another ledgerd on this machine? give each an address of its own: listen = \"127.0.0.1:7374\" or --listen; \"\" for none")
	case errors.Is(err, syscall.EACCES):
		return nil, fail(exitDenied, "port", fmt.Sprintf("%s: not allowed", s.flags.listen), "ports below 1024 are for root; take another one: --listen 127.0.0.1:7373")
	case err != nil:
		return nil, usage("port", "it must be an address of this machine, such as 127.0.0.1:7373", "cannot listen on %s: %v", s.flags.listen, err)
	}
	return at, nil
}

// kinds are the kinds to work: those that the config names and what their plugins emit, as far as the ledger
// knows it; without any, all of the ledger.
func (s *server) kinds(ctx context.Context) ([]string, error) {
	known, err := kindNames(ctx, s.ledger.Ledger)
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(s.config.Kinds))
	for _, src := range s.config.Sources {
		names = append(names, src.Kind)
	}
	if len(names) == 0 {
		return known, nil
	}
	for i := 0; i < len(names); i++ { // also what comes of what was emitted
		for _, emitted := range s.crew.emits(names[i]) {
			if slices.Contains(known, emitted) && !slices.Contains(names, emitted) {
				names = append(names, emitted)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// measure makes what others are told.
func (s *server) measure() {
	state := daemon.State{Plugins: s.crew.plugins, Sources: s.sources.Status, Busy: s.ledger.store.(interface{ Busy() int64 }).Busy}
	s.metrics = daemon.NewMetrics(programVersion(), s.ledger.Ledger, state)
	s.crew.meter = s.metrics
	s.health = &daemon.Health{Locks: locks.New(s.ledger.Ledger), Agent: s.name, Kinds: s.crew.problems, Sources: s.sources.Status, Log: s.log,
		Metrics: s.metrics.Handler()}
}

// attempt takes note of an attempt that has ended.
func (s *server) attempt(e worker.Event) {
	s.metrics.Attempt(e)
	level := slog.LevelDebug
	switch {
	case e.Round == ledger.RoundFailed || e.Round == ledger.RoundDoubt:
		level = slog.LevelWarn
	case e.Recorded == ledger.OutcomeFailed || e.Recorded == ledger.OutcomeCrashed:
		level = slog.LevelInfo
	}
	if !e.Accepted() || !s.log.Enabled(s.life, level) { // what was not accepted the worker has said
		return
	}
	s.log.Log(s.life, level, "attempt ended", "kind", e.Lease.Kind, "item", e.Lease.ID, "attempt", e.Lease.Attempt, "agent", e.Lease.Agent,
		"outcome", e.Recorded, "state", e.State, "code", e.Result.Code, "error", shorten(e.Result.Error), "ms", e.Worked.Milliseconds())
}

// shorten cuts what the log repeats of an error; the ledger has it as a whole.
func shorten(text string) string {
	const most = 500
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}

// answer answers requests until end is called; at is nil if nobody is to ask.
func (s *server) answer(ctx context.Context, at net.Listener, front *daemon.Front) (end func()) {
	if at == nil {
		return func() {}
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.log.Info("listening", "address", at.Addr().String(), "paths", "/livez /readyz /metrics")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := front.Serve(life, at); err != nil {
			s.log.Error("nobody can ask how this daemon is any more", "error", err)
		}
	}()
	return func() {
		stop()
		<-ended
	}
}

// attend hears signals and tells systemd how the daemon is until end is called.
func (s *server) attend(ctx context.Context) (end func()) {
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() { daemon.Watchdog(life, s.log, s.health.Alive) })
	all.Go(func() { s.hearReload(life) })
	stopping := context.AfterFunc(ctx, func() {
		s.health.Stop()
		daemon.Notify(s.log, daemon.Stopping)
		s.log.Info("stopping: finishing what runs", "grace", s.flags.work.grace.Duration.String())
	})
	daemon.Notify(s.log, daemon.Ready)
	return func() {
		stopping()
		stop()
		all.Wait()
	}
}

// restTime bounds how long the end of the daemon waits for sources: a look at a dead file server never ends.
const restTime = 5 * time.Second

// waitForSources waits until they have ended.
func (s *server) waitForSources() {
	rested := make(chan struct{})
	go func() {
		defer close(rested)
		s.sources.Wait()
	}()
	select {
	case <-rested:
	case <-time.After(restTime):
		s.log.Warn("a source does not end; its lock ends with its time")
	case <-s.hard.Done():
	}
}

// hearReload reads the config anew whenever SIGHUP comes, until ctx ends.
func (s *server) hearReload(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.hup:
		}
		select {
		case s.crew.calls <- func() { s.reload(s.life) }:
		case <-ctx.Done():
			return
		}
	}
}

// reload takes over the config as it is now, or keeps the old one if it is wrong. The crew calls it.
func (s *server) reload(ctx context.Context) {
	next := *s.app
	c, err := s.loadConfig()
	next.config = c
	if err = config.Mistakes(next.checkConfig(ctx, err)); err != nil {
		s.keepOld(err)
		return
	}
	old := s.config
	changes := config.Diff(old, c)
	s.config = c
	configs, err := s.sourceConfigs(ctx)
	if err == nil {
		err = s.introduceAll(ctx)
	}
	if err != nil {
		s.config = old
		s.keepOld(err)
		return
	}
	s.crew.reread = true
	s.daemonLogger() // takes over the level
	s.logWarnings()
	s.sources.Set(ctx, configs)
	for _, change := range changes {
		s.log.Info("config changed", "change", change.Text, "needs_restart", !change.Live)
	}
	s.log.Info("the config was read anew", "config", c.File, "changes", len(changes))
}

// keepOld says what is wrong with the new config.
func (s *server) keepOld(err error) {
	if bad, ok := errors.AsType[*config.Error](err); ok {
		for _, p := range bad.Problems {
			s.log.Error("config: "+p.Message, "at", p.Where(), "key", p.Key, "hint", p.Hint)
		}
	} else {
		s.log.Error("config: "+explain(err).message, "hint", explain(err).hint)
	}
	s.log.Error("the new config is wrong: going on with the old one")
}

// renewSources has the sources take inputs as the plugins take them by now.
func (s *server) renewSources(ctx context.Context) {
	configs, err := s.sourceConfigs(ctx)
	if err != nil {
		s.log.Error("sources go on as they were: "+explain(err).message, "hint", explain(err).hint)
		return
	}
	s.sources.Set(ctx, configs)
}

// introduceAll writes down what the config has come to say of the policies of kinds; those whose plugins are not known
// yet are written when they are taken up.
func (s *server) introduceAll(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(s.config.Kinds)) {
		k, err := s.kindNow(ctx, name)
		if err == nil && k != nil {
			err = s.introduce(ctx, s.ledger.Ledger, k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kindNow is what is known of a kind by now, without asking its plugin: nil if that has not said yet what
// it is.
func (s *server) kindNow(ctx context.Context, name string) (*kind, error) {
	policy, err := s.ledger.Kind(ctx, name)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return nil, err
	}
	k := s.crew.knows(name)
	if k == nil {
		if _, err := s.place(cmp.Or(s.config.PluginOf(name), policy.Plugin, name), s.flags.work.dirs); !isNoPlugin(err) {
			return nil, err
		}
		return s.resolve(ctx, s.ledger.Ledger, name, "", s.flags.work.dirs)
	}
	k.policy, k.known, k.config = policy, err == nil, s.config.Kind(name)
	return k, nil
}

// sourceConfigs are the sources of the config, with what their kinds say. One whose kind is not known yet is
// not looked at.
func (s *server) sourceConfigs(ctx context.Context) (all []source.Config, err error) {
	host, _ := os.Hostname() // as agents give it
	var waiting []string
	for _, spec := range s.config.Sources {
		k, err := s.kindNow(ctx, spec.Kind)
		if err != nil {
			return nil, err
		}
		if k == nil {
			waiting = append(waiting, spec.Name)
			continue
		}
		if err := s.introduce(ctx, s.ledger.Ledger, k); err != nil {
			return nil, err
		}
		payload, err := s.config.SourcePayload(spec, k.schema)
		given := fieldsOf(payload)
		if err == nil {
			payload, err = k.schema.Parse(payload, nil)
		}
		if err != nil {
			return nil, err
		}
		fields := map[string]string{}
		for _, f := range k.schema.Fields() {
			fields[f.Name] = f.Type
		}
		all = append(all, source.Config{Ledger: s.ledger.Ledger, Spec: spec, Input: k.input(), Payload: payload, Given: given, Fields: fields,
			Template: ledger.NewItem{Kind: spec.Kind, Scope: spec.Scope, Priority: int16(k.config.Priority), Every: k.config.Every, Zone: k.config.Zone},
			Parse:    k.schema.Parse, Validate: k.schema.Validate, Query: s.querySource(spec), Host: host, Agent: s.name, TTL: s.flags.work.lease.Duration,
			Log: s.log, Observe: s.metrics.Look})
	}
	if now := strings.Join(waiting, ", "); now != s.waiting {
		if s.waiting = now; now != "" {
			s.log.Warn("sources are not looked at until the plugins of their kinds have answered", "sources", waiting)
		}
	}
	return all, nil
}
