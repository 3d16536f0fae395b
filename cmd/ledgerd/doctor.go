package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/hostcheck"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tables"
)

// diagnosed is what doctor prints.
type diagnosed struct {
	OK       bool         `json:"ok"`
	Findings []findingRow `json:"findings"`
}

type findingRow struct {
	Level ledger.Level `json:"level"`
	Check string       `json:"check"`
	What  string       `json:"what"`
	Why   string       `json:"why"`
	Fix   string       `json:"fix"`
}

func (a *app) doctorCommand() *cobra.Command {
	var dirs pluginDirs
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what is wrong with the ledger, its database, this machine or a plugin; exit 1 if something is", GroupID: groupSetUp, Args: arguments(0, 0),
		Long: `Looks at the ledger and its database (schema, durability, disk, clocks, long transactions, vacuum,
rights, notifications), at this machine (limits, the port of its daemon, plugins without a host), starts each plugin and asks
it what it is, starts those of the kinds in the config with their config, as a worker does, and has them look whether what
they depend on is there (a mail server, a database; each answer may take 10 s), and looks for programs whose clock is off, leases of programs that are gone, kinds that
nobody works or whose plugin crashes again and again, and items that a person must decide.
Of all that is not fine it says why that matters and what to do. It changes nothing in the ledger.

Each finding is ok, a warning (works, but may not for long, or slower) or a problem (exit 1).
With -o json: {"ok","findings":[{"level","check","what","why","fix"}]}; jsonl, csv: the findings.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.address()
			if err != nil {
				return err
			}
			a.warnOfPassword()
			return a.tellFindings(a.diagnose(cmd.Context(), at, dirs))
		},
	}
	dirs.define(cmd.Flags())
	return cmd
}

// diagnose looks at everything.
func (a *app) diagnose(ctx context.Context, at dburl.Database, dirs pluginDirs) []ledger.Finding {
	all, sound := at.Examine(ctx)
	if sound {
		found, err := a.examineWork(ctx, at)
		if err != nil {
			f := explain(err)
			found = append(found, ledger.Problem("work", f.message, "commands may fail the same way", f.hint))
		}
		all = append(all, found...)
	}
	all = append(all, hostcheck.Examine()...)
	all = append(all, hostcheck.Port(ctx, a.config.Listen)...)
	var kinds []ledger.Finding
	var asking sync.WaitGroup
	asking.Go(func() { kinds = a.examineKinds(ctx, dirs) }) // a plugin that does not answer is waited for once
	all = append(all, a.examinePlugins(ctx, dirs)...)
	asking.Wait()
	all = append(all, kinds...)
	return append(all, a.orphans(dirs))
}

// tellFindings prints what was found and ends with 1 if something is wrong.
func (a *app) tellFindings(all []ledger.Finding) error {
	d := diagnosed{OK: true}
	for _, f := range all {
		d.Findings = append(d.Findings, findingRow{f.Level, f.Check, f.What, f.Why, f.Fix})
		d.OK = d.OK && f.Level != ledger.LevelProblem
	}
	p := a.printer()
	var err error
	switch p.Format {
	case report.JSON:
		err = p.Object(d)
	case report.Table:
		for _, f := range d.Findings {
			fmt.Fprintf(a.stdout, "%-8s %-14s %s\n", f.Level, f.Check, report.Safe(f.What))
			if f.Level != ledger.LevelOK {
				fmt.Fprintf(a.stdout, "%24swhy: %s\n%24sfix: %s\n", "", report.Safe(f.Why), "", report.Safe(f.Fix))
			}
		}
	default:
		_, err = report.List(p, each(d.Findings))
	}
	if err == nil && !d.OK {
		return status(exitError)
	}
	return err
}

// examineWork looks at who works the ledger and at what waits for a person.
func (a *app) examineWork(ctx context.Context, at dburl.Database) ([]ledger.Finding, error) {
	l, err := a.openAt(ctx, at, false)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	agents, err := l.Agents(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := l.Counts(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	holders, err := examineHolders(ctx, l, agents)
	all := append(holders, unworked(counts, kinds, agents, func(kind string) string {
		k, err := l.Kind(ctx, kind)
		if err != nil {
			return ""
		}
		return a.missingSettings(ctx, k)
	})...)
	all = append(all, stalled(agents)...)
	all = append(all, refusals(kinds, agents)...)
	all = append(all, a.policyFindings(kinds)...)
	all = append(all, skewed(agents)...)
	return append(all, decisions(counts)), err
}

// mostSkew is how far the clock of a machine may be off before it is worth a word.
const mostSkew = 2 * time.Second

// skewed are programs on machines whose clock is off.
func skewed(live []ledger.Agent) (all []ledger.Finding) {
	for _, g := range live {
		if g.Skew.Abs() <= mostSkew {
			continue
		}
		way := "ahead of"
		if g.Skew < 0 {
			way = "behind"
		}
		all = append(all, ledger.Warning("clock", fmt.Sprintf("%s: its clock is %s %s the database's", g.Name, g.Skew.Abs().Round(10*time.Millisecond), way),
			"leases do not depend on it; times in its logs, and of its schedules, do", "keep it in step (timedatectl, chrony)"))
	}
	return all
}

// stalled are kinds whose plugin crashes again and again, or does not start.
func stalled(live []ledger.Agent) (all []ledger.Finding) {
	for _, g := range live {
		for _, kind := range stalledKinds(g, time.Now().Add(-g.Skew)) {
			_, works := g.Kinds[kind]
			if !works && g.Configs[kind] != "" { // said once for a process, see refused
				continue
			}
			if !works {
				all = append(all, ledger.Warning("kind", fmt.Sprintf("kind %s is not worked by %s: its plugin does not start there", kind, g.Name),
					"its items wait; the plugin is tried again, at least once a minute", "/readyz of that daemon has a code, its log the error; on that machine: ledgerd doctor"))
				continue
			}
			all = append(all, ledger.Warning("breaker", fmt.Sprintf("the plugin of kind %s crashes again and again on %s", kind, g.Name),
				fmt.Sprintf("nothing is given to it until %s, then one item to try", g.Stalled[kind].Local().Format("2006-01-02 15:04:05")),
				fmt.Sprintf("ledgerd errors --where kind:%s says how it ends; ledgerd plugin check PLUGIN tries it", kind)))
		}
	}
	return all
}

// mostHeld is how many leases are looked at.
const mostHeld = 10_000

// examineHolders looks for leases that nobody will end: of programs whose heartbeat has run out,
// and those beyond their time.
func examineHolders(ctx context.Context, l *opened, live []ledger.Agent) ([]ledger.Finding, error) {
	beats, err := heartbeats(ctx, l.store.(tables.Store))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	gone, over, looked := map[string]*ledger.Holder{}, 0, 0
	for it, err := range l.List(ctx, ledger.Filter{States: []ledger.State{ledger.StateLeased}}, 0) {
		if err != nil {
			return nil, err
		}
		_, program := beats[it.Agent]
		alive := slices.ContainsFunc(live, func(a ledger.Agent) bool { return a.Name == it.Agent })
		switch {
		case program && !alive:
			if gone[it.Agent] == nil {
				gone[it.Agent] = &ledger.Holder{Agent: it.Agent, SeenAt: beats[it.Agent]}
			}
			h := gone[it.Agent]
			if h.Items++; it.ExpiresAt.After(h.Until) {
				h.Until = it.ExpiresAt
			}
		case now.After(it.ExpiresAt.Add(time.Minute)):
			over++
		}
		if looked++; looked == mostHeld {
			break
		}
	}
	var all []ledger.Finding
	p := new(report.Printer)
	for name, h := range gone {
		all = append(all, ledger.Warning("agents", fmt.Sprintf("%s has given no sign since %s and holds %s", name, p.Local(h.SeenAt), plural(h.Items, "item")),
			fmt.Sprintf("they wait until their leases end, the last at %s, and then for a worker to take them back", p.Local(h.Until)),
			"have a worker run: ledgerd work; if that program is surely gone, free them now: "+h.Free()))
	}
	slices.SortFunc(all, func(a, b ledger.Finding) int { return strings.Compare(a.What, b.What) })
	if over > 0 {
		all = append(all, ledger.Warning("leases", fmt.Sprintf("%s leased beyond the time of the lease", plural(int64(over), "item")),
			"no worker runs that would take them back", "ledgerd work, or ledgerd ls --state leased to see whose they are"))
	}
	if len(all) == 0 {
		all = append(all, ledger.Fine("agents", fmt.Sprintf("%s at work, no lease is forgotten", plural(int64(len(live)), "program"))))
	}
	return all, nil
}

// heartbeats are the newest ones of all programs that have not said goodbye.
func heartbeats(ctx context.Context, s tables.Store) (map[string]time.Time, error) {
	seen := map[string]time.Time{}
	err := s.ReadTables(ctx, func(r tables.Reader) error {
		all, err := r.Tables()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(t tables.Table) bool { return t.Name == "ledger_agents" })
		name, at := slices.Index(all[i].Columns, "agent"), slices.Index(all[i].Columns, "seen_at")
		return r.Scan(all[i], nil, func(row tables.Row) error {
			seen[row[name].(string)] = time.UnixMicro(row[at].(int64))
			return nil
		})
	})
	return seen, err
}

// idle is for how long something may be ready before it is said that nobody works it.
const idle = 10 * time.Minute

// unworked are kinds with ready items that are paused, or that no program works. flags are those that work needs
// for a kind.
func unworked(counts []ledger.Counts, kinds []ledger.Kind, live []ledger.Agent, flags func(kind string) string) (all []ledger.Finding) {
	for _, c := range counts {
		works := slices.ContainsFunc(live, func(a ledger.Agent) bool { _, ok := a.Kinds[c.Kind]; return ok })
		paused := slices.ContainsFunc(kinds, func(k ledger.Kind) bool { return k.Name == c.Kind && k.Paused })
		switch since := time.Since(c.OldestReady); {
		case c.Ready > 0 && paused:
			all = append(all, ledger.Warning("kinds", fmt.Sprintf("kind %s is paused, and %s of it ready", c.Kind, plural(c.Ready, "item")),
				"nothing of it is worked until somebody resumes it", "ledgerd kind resume "+c.Kind))
		case c.Ready > 0 && !works && since > idle:
			all = append(all, ledger.Warning("kinds", fmt.Sprintf("%s of kind %s ready, the first since %s, and no program works it", plural(c.Ready, "item"), c.Kind, since.Round(time.Second)),
				"they wait until somebody does, or it is a kind for people", "ledgerd work --kind "+c.Kind+flags(c.Kind)))
		}
	}
	return all
}

// decisions says how much waits for a person.
func decisions(counts []ledger.Counts) ledger.Finding {
	var parts []string
	for _, c := range counts {
		if c.Dead > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s dead", c.Kind, report.Count(c.Dead)))
		}
		if c.Doubt > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s in doubt", c.Kind, report.Count(c.Doubt)))
		}
	}
	if len(parts) == 0 {
		return ledger.Fine("decisions", "nothing waits for a person")
	}
	return ledger.Warning("decisions", strings.Join(parts, ", "), "they stay as they are until a person decides", "ledgerd ls --state dead,doubt, then retry, cancel or finish")
}

// examinePlugins starts each plugin and asks it what it is.
func (a *app) examinePlugins(ctx context.Context, dirs pluginDirs) (all []ledger.Finding) {
	found, err := a.survey(ctx, dirs)
	for _, s := range found {
		all = append(all, examinePlugin(s)...)
	}
	if err != nil {
		e := explain(err)
		all = append(all, ledger.Problem("plugin", e.message, "plugins are not found", e.hint))
	}
	return all
}

// examinePlugin says what came of asking a plugin what it is.
func examinePlugin(s surveyed) []ledger.Finding {
	name := s.place.Name
	if s.err != nil {
		e := explain(s.err)
		if e.hint == "" { // some say what to do in a second line
			e.message, e.hint, _ = strings.Cut(e.message, "\n  ")
		}
		return []ledger.Finding{ledger.Problem("plugin", name+": "+e.message, "kinds that it works are not worked here",
			cmp.Or(e.hint, "look at what it does: ledgerd plugin check "+name))}
	}
	all := []ledger.Finding{ledger.Fine("plugin", fmt.Sprintf("%s %s (%s) answers after %s", name, s.plugin.Version, s.place.Origin, s.took.Round(time.Millisecond)))}
	if limits := strings.Join(s.plugin.spec.Limits.InForce(), "; "); limits != "" && pluginproc.LimitsKept {
		all = append(all, ledger.Fine("limits", name+": "+limits))
	} else if limits != "" {
		all = append(all, ledger.Warning("limits", name+": "+limits, "it may take what it likes", "have the system limit ledgerd as a whole, or run it on Linux"))
	}
	return all
}

// examineKinds has the plugin of each kind in the config look, with that config, whether what it depends
// on is there.
func (a *app) examineKinds(ctx context.Context, dirs pluginDirs) []ledger.Finding {
	names := slices.Sorted(maps.Keys(a.config.Kinds))
	found := make([][]ledger.Finding, len(names))
	var all errgroup.Group
	all.SetLimit(surveyMost)
	for i, name := range names {
		all.Go(func() error {
			found[i] = a.examineKind(ctx, name, dirs)
			return nil
		})
	}
	_ = all.Wait()
	return slices.Concat(found...)
}

func (a *app) examineKind(ctx context.Context, name string, dirs pluginDirs) []ledger.Finding {
	wanted := cmp.Or(a.config.PluginOf(name), name)
	if _, err := a.place(wanted, dirs); isNoPlugin(err) && wanted == name { // it is for people, or worked elsewhere
		return nil
	}
	k, err := a.resolve(ctx, nil, name, "", dirs)
	var c pluginhost.Config
	if err == nil {
		c, err = a.hostConfig(k, nil, pluginhost.Config{})
	}
	var problem string
	if err == nil {
		problem, err = pluginhost.Check(ctx, c)
		err = a.startError(k, err)
	}
	const why = "its items are not worked here, or fail, until that is mended"
	switch {
	case err != nil:
		e := explain(err)
		return []ledger.Finding{ledger.Problem("kind", name+": "+e.message, why, cmp.Or(e.hint, "ledgerd plugin check "+wanted))}
	case problem != "":
		return []ledger.Finding{ledger.Problem("kind", fmt.Sprintf("%s: plugin %s says: %s", name, wanted, problem), why,
			fmt.Sprintf("mend what it names, or its config: [kinds.%s] of %s", name, cmp.Or(a.config.File, "the config")))}
	}
	return []ledger.Finding{ledger.Fine("kind", fmt.Sprintf("%s: plugin %s takes its config, and all that it depends on is there", name, wanted))}
}

// programs are all programs of plugins that a ledgerd with these folders and data may have started: those
// that are found, those that they shadow, and every version that was added.
func (a *app) programs(dirs pluginDirs) (paths []string) {
	if f, err := a.finder(dirs); err == nil {
		places, _ := f.List() // that it cannot be read is said of the plugins
		for _, place := range places {
			paths = append(paths, place.Path)
			for _, shadowed := range place.Shadows {
				paths = append(paths, shadowed.Path)
			}
		}
	}
	if store, err := a.plugins(); err == nil {
		names, _ := store.Names()
		for _, name := range names {
			versions, _ := store.Versions(name)
			for _, v := range versions {
				paths = append(paths, v.Path)
			}
		}
	}
	return paths
}

// orphans looks for plugins whose ledgerd is gone.
func (a *app) orphans(dirs pluginDirs) ledger.Finding {
	var list, pids []string
	for _, o := range pluginproc.Orphans(a.programs(dirs)) {
		list = append(list, fmt.Sprintf("%d (%s)", o.PID, report.Safe(o.Command)))
		pids = append(pids, fmt.Sprint(o.PID))
	}
	if len(list) == 0 {
		return ledger.Fine("orphans", "no plugin runs without its ledgerd")
	}
	return ledger.Warning("orphans", "plugins whose ledgerd is gone: "+strings.Join(list, ", "), "they take memory, and may still be at what they had begun", "kill "+strings.Join(pids, " "))
}
