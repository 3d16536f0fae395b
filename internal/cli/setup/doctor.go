package setup

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

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/attention"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/hostcheck"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// diagnosed is what doctor prints with -o json.
type diagnosed struct {
	OK       bool         `json:"ok"`
	Findings []findingRow `json:"findings"`
}

type findingRow struct {
	Level finding.Level `json:"level"`
	Check string        `json:"check"`
	What  string        `json:"what"`
	Why   string        `json:"why"`
	Fix   string        `json:"fix"`
}

func DoctorCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find what is wrong with the ledger, its database, this machine or a plugin; exit 1 if " +
			"something is", GroupID: app.GroupSetUp, Args: app.Arguments(0, 0),
		Long: `Checks:
  - the ledger and its database: schema, durability, damage (for 5 s; all of it: ledgerd db verify), disk, clocks,
    long transactions, vacuum, rights, notifications;
  - this machine: limits, the port of its daemon;
  - each plugin: it is started and must describe itself;
  - the plugins of the kinds in the config: they are started with their config, as a worker does, and check the
    systems that they depend on, such as a mail server or a database (each answer may take 10 s);
  - the work: programs with a wrong clock, leases of programs that are gone, kinds that no program works or whose
    plugin crashes again and again, and items that a person must decide.
For each fault it prints why it matters and what to do. It changes nothing in the ledger.

Each finding is ok, a warning (works, but may not for long, or slower) or a problem (exit 1).
With -o json: {"ok","findings":[{"level","check","what","why","fix"}]}; jsonl, csv: the findings.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.Address()
			if err != nil {
				return err
			}
			a.WarnOfPassword()
			return tellFindings(a, diagnose(cmd.Context(), a, at))
		},
	}
	a.PluginDirFlag(cmd.Flags())
	return cmd
}

// rowOf returns a finding as it is printed, with the command of its act in the fix.
func rowOf(a *app.App, f finding.Finding) findingRow {
	return findingRow{f.Level, f.Check, f.What, f.Why, a.Typed(app.Worded(f.Fix, f.Act))}
}

// diagnose returns all findings. It examines damage and the work only if the ledger can be opened (sound).
func diagnose(ctx context.Context, a *app.App, at dburl.Database) []finding.Finding {
	all, sound := at.Examine(ctx)
	if sound {
		all = append(all, examineIntegrity(ctx, a, at))
		found, err := examineWork(ctx, a, at)
		if err != nil {
			f := failure.Explain(err)
			found = append(found, finding.Problem("work", f.Message, "commands may fail the same way", f.Hint).By(f.Act.Name))
		}
		all = append(all, found...)
	}
	all = append(all, hostcheck.Examine()...)
	all = append(all, hostcheck.Port(ctx, a.Config.Listen)...)
	var kinds []finding.Finding
	var asking sync.WaitGroup
	asking.Go(func() { kinds = examineKinds(ctx, a) }) // beside the plugins, so that their deadlines do not add up
	all = append(all, examinePlugins(ctx, a)...)
	asking.Wait()
	return append(all, kinds...)
}

// integrityTime is how long doctor looks for damage; db verify looks to the end.
const integrityTime = 5 * time.Second

func examineIntegrity(ctx context.Context, a *app.App, at dburl.Database) finding.Finding {
	began := time.Now()
	f := integrity(ctx, at, integrityTime)
	if time.Since(began) >= integrityTime {
		f.What += "; to read all of it: " + a.Typed("ledgerd db verify")
	}
	return f
}

// tellFindings prints what was found and ends with 1 if something is wrong.
func tellFindings(a *app.App, all []finding.Finding) error {
	d := diagnosed{OK: true}
	for _, f := range all {
		d.Findings = append(d.Findings, rowOf(a, f))
		d.OK = d.OK && f.Level != finding.LevelProblem
	}
	p := a.Printer()
	var err error
	switch {
	case p.Format == report.JSON:
		err = p.Object(d)
	case p.Format == report.Table && p.Columns == nil:
		for _, f := range d.Findings {
			fmt.Fprintf(a.Stdout, "%-8s %-14s %s\n", f.Level, f.Check, report.Safe(f.What))
			if f.Level != finding.LevelOK {
				fmt.Fprintf(a.Stdout, "%24swhy: %s\n%24sfix: %s\n", "", report.Safe(f.Why), "", report.Safe(f.Fix))
			}
		}
	default:
		_, err = report.List(p, report.Each(d.Findings))
	}
	if err == nil && !d.OK {
		return failure.Status(failure.ExitError)
	}
	return err
}

// examineWork examines the programs that work the ledger, and the items that wait for a person.
func examineWork(ctx context.Context, a *app.App, at dburl.Database) ([]finding.Finding, error) {
	l, err := a.OpenAt(ctx, at, app.ToRead)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	agents, err := l.Agents(ctx)
	if err != nil {
		return nil, err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := l.Counts(ctx, now)
	if err != nil {
		return nil, err
	}
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	pauses, err := l.Pauses(ctx, kinds...)
	if err != nil {
		return nil, err
	}
	holders, unread := examineHolders(ctx, l, agents, now)
	all := append(holders, unworked(counts, now, kinds, pauses, agents, func(kind string, k ledger.Kind) (string, bool) {
		return a.Worker(ctx, kind, k)
	})...)
	all = append(all, stalled(agents)...)
	lapsed, err := l.Lapsed(ctx)
	if err != nil {
		return nil, err
	}
	all = append(all, killed(lapsed, agents)...)
	all = append(all, refusals(kinds, agents)...)
	all = append(all, a.PolicyFindings(kinds)...)
	all = append(all, skewed(agents)...)
	all = append(all, sameNames(agents)...)
	decide, failed := decisions(ctx, l.Ledger, counts)
	return append(all, decide...), cmp.Or(unread, failed)
}

// maxSkew is the largest difference between clocks that is no finding.
const maxSkew = 2 * time.Second

// skewed warns of programs on machines whose clock differs from the database's.
func skewed(live []ledger.Agent) (all []finding.Finding) {
	for _, g := range live {
		if g.Skew.Abs() <= maxSkew {
			continue
		}
		way := "ahead of"
		if g.Skew < 0 {
			way = "behind"
		}
		all = append(all, finding.Warning("clock", fmt.Sprintf("%s: its clock is %s %s the database's", g.Name,
			g.Skew.Abs().Round(10*time.Millisecond), way),
			"leases do not depend on it; times in its logs, and of its schedules, do", "keep it in step (timedatectl, chrony)"))
	}
	return all
}

// sameNames warns of live processes with the same agent name. A process with several agents counts once.
func sameNames(live []ledger.Agent) (all []finding.Finding) {
	for i, g := range live {
		others := g.Namesakes(live[:i])
		if len(others) == 0 || slices.ContainsFunc(live[:i], g.SameProcess) {
			continue
		}
		o := others[0]
		all = append(all,
			finding.Warning("agents", fmt.Sprintf("%s (host %s, pid %d) and %s (host %s, pid %d) have the same agent name",
				o.Name, o.Host, o.PID, g.Name, g.Host, g.PID),
				"a filter by that name finds what both hold, and names of agents do not tell them apart", "give each daemon an "+
					"agent of its own in its config, or none"))
	}
	return all
}

// stalled warns of kinds whose plugin crashes again and again, or does not start.
func stalled(live []ledger.Agent) (all []finding.Finding) {
	for _, g := range live {
		for _, kind := range answer.StalledKinds(g, time.Now().Add(-g.Skew)) {
			_, works := g.Kinds[kind]
			if !works && g.Configs[kind] != "" { // refusals warns of it
				continue
			}
			if !works {
				all = append(all,
					finding.Warning("kind", fmt.Sprintf("kind %s is not worked by %s: its plugin does not start there%s",
						kind, g.Name, lastError(g, kind)),
						"its items wait; the plugin is tried again, at least once a minute", "/readyz of that daemon has a code, its "+
							"log the error; on that machine: ledgerd doctor"))
				continue
			}
			all = append(all, finding.Warning("breaker", fmt.Sprintf("the plugin of kind %s crashes again and again on %s%s", kind,
				g.Name, lastError(g, kind)),
				fmt.Sprintf("nothing is given to it until %s, then one item to try",
					g.Stalled[kind].Local().Format("2006-01-02 15:04:05")),
				fmt.Sprintf("ledgerd errors --where kind:%s shows how it ends; ledgerd plugin check PLUGIN tries it", kind)))
		}
	}
	return all
}

// maxHeld is how many leases are read.
const maxHeld = 10_000

// examineHolders warns of leases that no process will end: leases of programs whose heartbeat has expired, and leases
// that have expired themselves.
func examineHolders(ctx context.Context, l *app.Database, live []ledger.Agent, now time.Time) ([]finding.Finding,
	error) {
	programs, err := l.Heartbeats(ctx)
	if err != nil {
		return nil, err
	}
	seenAt := map[string]time.Time{} // of programs, by name; people are not in it
	for _, p := range programs {
		seenAt[p.Name] = p.SeenAt
	}
	gone, expired, looked := map[string]*ledger.Holder{}, 0, 0
	for it, err := range l.List(ctx, ledger.Filter{States: []ledger.State{ledger.StateLeased}}, 0) {
		if err != nil {
			return nil, err
		}
		_, isProgram := seenAt[it.Agent]
		isLive := slices.ContainsFunc(live, func(a ledger.Agent) bool { return a.Name == it.Agent })
		switch {
		case isProgram && !isLive:
			if gone[it.Agent] == nil {
				gone[it.Agent] = &ledger.Holder{Agent: it.Agent, SeenAt: seenAt[it.Agent]}
			}
			h := gone[it.Agent]
			if h.Items++; it.ExpiresAt.After(h.Until) {
				h.Until = it.ExpiresAt
			}
		case now.After(it.ExpiresAt.Add(time.Minute)):
			expired++
		}
		if looked++; looked == maxHeld {
			break
		}
	}
	var all []finding.Finding
	for name, h := range gone {
		all = append(all, finding.Warning("agents", fmt.Sprintf("%s has given no sign since %s and holds %s", name,
			report.Local(h.SeenAt), report.Plural(h.Items, "item")),
			fmt.Sprintf("they wait until their leases end, the last at %s, and then for a worker to take them back",
				report.Local(h.Until)),
			"have a worker run: ledgerd work; if that program is surely gone, free them now: "+app.Words(h.Release())))
	}
	slices.SortFunc(all, func(a, b finding.Finding) int { return strings.Compare(a.What, b.What) })
	if expired > 0 {
		all = append(all, finding.Warning("leases", fmt.Sprintf("%s leased beyond the time of the lease",
			report.Plural(int64(expired), "item")),
			"no worker runs that would take them back", "ledgerd work, or ledgerd ls --state leased to see whose they are"))
	}
	if len(all) == 0 {
		all = append(all, finding.Fine("agents", fmt.Sprintf("%s at work, no lease is forgotten",
			report.Plural(int64(len(live)), "program"))))
	}
	return all, nil
}

// idle is how long items for people may be ready without a warning.
const idle = 10 * time.Minute

// unworked reports kinds with items that no program works, as stats does, see attention.HeldUp: the kind is paused, or
// no program works it. It also warns of a kind for people whose items have been ready for longer than idle.
func unworked(counts []stats.Counts, now time.Time, kinds []ledger.Kind, pauses map[string]ledger.JournalEntry,
	live []ledger.Agent, worker func(kind string, k ledger.Kind) (command string, byPlugin bool)) (all []finding.Finding) {
	for _, c := range counts {
		k := attention.KindOf(c.Kind, kinds)
		what, next := attention.HeldUp(c, k, pauses[c.Kind], live, worker)
		switch since := now.Sub(c.OldestReady); {
		case k.Paused && what != "":
			all = append(all, finding.Warning("kinds", what, "nothing of it is worked until somebody resumes it", next))
		case what != "":
			if len(live) == 0 {
				what += "; no worker and no daemon runs"
			}
			all = append(all, finding.Problem("kinds", what, "they wait until one does", next))
		case c.Ready > 0 && since > idle && !attention.Worked(c.Kind, live):
			next, _ := worker(c.Kind, k)
			all = append(all,
				finding.Warning("kinds", fmt.Sprintf("%s of kind %s ready, the first since %s, and no program works it",
					report.Plural(c.Ready, "item"), c.Kind, since.Round(time.Second)),
					"people work it: they wait until somebody claims them", next))
		}
	}
	return all
}

// decisions warns of items that are dead or in doubt: a person decides about them.
func decisions(ctx context.Context, l *ledger.Ledger, counts []stats.Counts) (all []finding.Finding, err error) {
	const why = "they stay as they are until a person decides"
	for _, c := range counts {
		if c.Dead > 0 {
			what, next, err := attention.DeadOf(ctx, l, c)
			if err != nil {
				return all, err
			}
			all = append(all, finding.Warning("decisions", what, why, next))
		}
		if c.Doubt > 0 {
			what, next := attention.DoubtOf(c)
			all = append(all, finding.Warning("decisions", what, why, next))
		}
	}
	if len(all) == 0 {
		all = append(all, finding.Fine("decisions", "nothing waits for a person"))
	}
	return all, nil
}

// examinePlugins starts each plugin and asks for its description.
func examinePlugins(ctx context.Context, a *app.App) (all []finding.Finding) {
	if none := pluginproc.NoPlugins(); none != nil {
		return []finding.Finding{finding.Warning("plugin", none.Problem, "kinds with a plugin are not worked here", none.Hint)}
	}
	found, err := a.Survey(ctx)
	for _, s := range found {
		all = append(all, examinePlugin(s)...)
	}
	if err != nil {
		e := failure.Explain(err)
		all = append(all, finding.Problem("plugin", e.Message, "plugins are not found", e.Hint))
	}
	return all
}

// examinePlugin describes the answer of a plugin, and how its limits are enforced.
func examinePlugin(s kinds.Surveyed) []finding.Finding {
	name := s.Place.Name
	if s.Err != nil {
		e := failure.Explain(s.Err)
		if e.Hint == "" { // the second line of some messages is a hint
			e.Message, e.Hint, _ = strings.Cut(e.Message, "\n  ")
		}
		return []finding.Finding{finding.Problem("plugin", name+": "+e.Message, "kinds that it works are not worked here",
			cmp.Or(e.Hint, "look at what it does: ledgerd plugin check "+name))}
	}
	all := []finding.Finding{finding.Fine("plugin", fmt.Sprintf("%s %s (%s) answers after %s", name, s.Plugin.Version,
		s.Place.Origin, s.Took.Round(time.Millisecond)))}
	if limits := strings.Join(s.Plugin.Spec.Limits.InForce(), "; "); limits != "" && pluginproc.LimitsKept {
		all = append(all, finding.Fine("limits", name+": "+limits))
	} else if limits != "" {
		all = append(all, finding.Warning("limits", name+": "+limits, "it may take what it likes",
			"have the system limit ledgerd as a whole, or run it on Linux"))
	}
	return all
}

// examineKinds starts the plugins of the kinds in the config, each with its config, and lets them check the systems
// that they depend on.
func examineKinds(ctx context.Context, a *app.App) []finding.Finding {
	names := slices.Sorted(maps.Keys(a.Config.Kinds))
	found := make([][]finding.Finding, len(names))
	var all errgroup.Group
	all.SetLimit(kinds.SurveyMost)
	for i, name := range names {
		all.Go(func() error {
			found[i] = examineKind(ctx, a, name)
			return nil
		})
	}
	_ = all.Wait()
	return slices.Concat(found...)
}

// examineKind starts the plugin of one kind. A kind that people or other machines work has no findings.
func examineKind(ctx context.Context, a *app.App, name string) []finding.Finding {
	wanted := cmp.Or(a.Config.PluginOf(name), name)
	if _, err := a.Place(wanted); kinds.IsNoPlugin(err) && wanted == name {
		return nil
	}
	k, err := a.Resolve(ctx, nil, name, "")
	var c pluginhost.Config
	if err == nil {
		c, err = a.HostConfig(k, nil, pluginhost.Config{})
	}
	var problem string
	if err == nil {
		problem, err = pluginhost.Check(ctx, c)
		err = a.StartError(k, err)
	}
	const why = "its items are not worked here, or fail, until that is mended"
	switch {
	case err != nil:
		e := failure.Explain(err)
		return []finding.Finding{finding.Problem("kind", name+": "+e.Message, why, cmp.Or(e.Hint, "ledgerd plugin check "+
			wanted))}
	case problem != "":
		return []finding.Finding{finding.Problem("kind", fmt.Sprintf("%s: plugin %s reports: %s", name, wanted, problem), why,
			fmt.Sprintf("mend what it names, or its config: [kinds.%s] of %s", name, cmp.Or(a.Config.File, "the config")))}
	}
	return []finding.Finding{finding.Fine("kind",
		fmt.Sprintf("%s: plugin %s takes its config, and all that it depends on is there", name, wanted))}
}
