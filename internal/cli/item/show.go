package item

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	ledgeract "github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/health"
)

// shown is the output of show as JSON.
type shown struct {
	Item     answer.ItemDetail `json:"item"`
	Attempts []answer.Attempt  `json:"attempts"`
	Why      whyRow            `json:"why"`
	Journal  []answer.Journal  `json:"journal"` // what people did to it since, newest first
	since    time.Time
}

func ShowCommand(a *app.App) *cobra.Command {
	var kinds, scopes []string
	cmd := &cobra.Command{
		Use: "show ID|KEY", Short: "Show one item: why it is where it is, and its attempts with log and output",
		GroupID: app.GroupLook, Args: app.Arguments(1, 1),
		Long: `Shows an item. It is named by its id or by its key, a path or URL as typed. The first lines explain what
the item waits for, which agent has it, or how it ended; "next:" names the command that would help.

With -o json: {"item":{…},"attempts":[{"attempt","round","agent","plugin","due_at","started_at",
"begun_at","ended_at","renewals","outcome","code","cause","error","output","log"}],"why":{"id","state","code","text","since","until","next",
"acts"},"journal":[{"id","at","actor","action","subject","detail","changed","ids","keys"}]}: its newest 100 attempts, and the
last acts of people on it, of the last 30 days, as journal prints them.

acts are the acts that would help, as objects, the best first: {"act":"retry","item":17}. The acts are retry, reopen,
finish, cancel, release, resume, set-limit, work, show-errors and install-plugin, each with the fields that it needs
of item, kind, field, shard, agent and plugin. next has the commands.

Codes of why: leased (an agent works on it), due (later), backoff (it failed and will be tried again), next (it recurs),
paused (its kind is paused), max_running, rate (limits of its kind), shard (no agent works its shard), no_worker (no
agent works its kind), no_plugin (no agent works its kind, and the plugin is not on this machine), breaker (its plugin
crashes again and again on every machine), behind (other items come first), dead, doubt, done, cancelled.`,
		Example: "  ledgerd show inbox/march/leads-03.csv\n  ledgerd show 17 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.Open(cmd.Context(), app.ToRead)
			if err != nil {
				return err
			}
			defer l.Close()
			it, err := app.Find(cmd.Context(), l.Any, args[0], kinds, scopes)
			if err != nil {
				return err
			}
			return show(cmd.Context(), a, l.Any, it)
		},
	}
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "of these `kinds`, where a key has items of several")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "of these `scopes`")
	return cmd
}

// show prints an item.
func show(ctx context.Context, a *app.App, l ledgers.Any, it ledger.Item) error {
	p, most := a.Printer(), listedAttempts
	if p.Format == report.Table {
		most = shownAttempts
	}
	attempts, err := l.AttemptsBefore(ctx, it.ID, 0, most+1)
	if err != nil {
		return err
	}
	older := len(attempts) > most
	attempts = attempts[:min(len(attempts), most)]
	why, err := reason(ctx, a, l, it)
	if err != nil {
		return err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	s := shown{Item: answer.NewItemDetail(it), Attempts: []answer.Attempt{}, Journal: []answer.Journal{}, Why: why,
		since: it.CreatedAt}
	if early := now.Add(-shownTime); s.since.Before(early) {
		s.since = early
	}
	for _, at := range slices.Backward(attempts) {
		s.Attempts = append(s.Attempts, answer.NewAttempt(at))
	}
	acts, err := l.Journal(ctx, ledger.JournalQuery{Item: it.ID, Since: s.since, Limit: shownActs})
	if err != nil {
		return err
	}
	for _, e := range acts {
		s.Journal = append(s.Journal, answer.NewJournal(e))
	}
	switch {
	case p.Format == report.Table:
		return showText(a, s, older)
	case p.Format == report.CSV:
		return failure.Usage("bad_flag", "", "show has more than rows: -o table, json or jsonl")
	case older && !a.Quiet:
		a.Advise(a.Stderr, "these are the newest %d attempts; the page of the item (ledgerd ui) and the API have all\n", most)
	}
	return p.Object(s)
}

// utcTime matches a time in a sentence of the ledger.
var utcTime = lazyregexp.New(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})? UTC`)

// inLocalTime returns a sentence of the ledger with its times in the zone of this machine.
func inLocalTime(sentence string) string {
	return utcTime().ReplaceAllStringFunc(sentence, func(text string) string {
		t, err := time.Parse("2006-01-02 15:04:05 MST", text)
		if err != nil {
			return text
		}
		return t.Local().Format("2006-01-02 15:04:05 MST")
	})
}

const (
	shownActs = 10                  // newest journal entries of an item that are shown
	shownTime = 30 * 24 * time.Hour // how far back they are looked for: no index leads from an item to its acts
	// Newest attempts that people see, and that JSON has. Each has an output of up to 1 MiB.
	shownAttempts, listedAttempts = 10, 100
)

// showText prints an item for people. older: it has attempts that are not shown.
func showText(a *app.App, s shown, older bool) error {
	it := s.Item
	var b strings.Builder
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", name, report.Safe(value))
		}
	}
	fmt.Fprintf(&b, "%d  %s\n", it.ID, report.Safe(it.Key))
	field("kind", it.Kind)
	field("scope", it.Scope)
	round := it.Round
	if it.Every != "" {
		round += " " + string(it.RoundState)
	}
	field("state", fmt.Sprintf("%s, round %s, %s", it.State, round, attemptsOf(it.Attempt)))
	field("every", strings.TrimSpace(it.Every+" "+it.Zone))
	if it.Pruned {
		field("payload", "pruned")
	}
	field("payload", report.OneLine(it.Payload))
	field("shard key", it.ShardKey)
	field("added", report.Local(time.Time(it.Added))+report.Prefixed(" from ", it.Source))
	field("trace", cmp.Or(a.Config.TraceLink(it.TraceID), it.TraceID))
	switch {
	case !time.Time(it.Failing).IsZero():
		field("failing", "since "+report.Local(time.Time(it.Failing)))
	case !time.Time(it.Recovered).IsZero():
		field("recovered", report.Local(time.Time(it.Recovered)))
	}
	fmt.Fprintf(&b, "\n%s\n", report.Safe(inLocalTime(s.Why.Text)))
	if s.Why.Next != "" {
		fmt.Fprintf(&b, "next: %s\n", s.Why.Next)
	}
	for i, e := range s.Journal {
		lead := ""
		if i == 0 {
			lead = "\n"
		}
		fmt.Fprintf(&b, "%s%s  %s  %s\n", lead, report.Local(time.Time(e.At)), report.Safe(e.By()),
			report.Safe(e.Did()))
	}
	if s.since.After(time.Time(it.Added)) && len(s.Journal) < shownActs {
		a.Advise(&b, "\nacts before %s: ledgerd journal --item %d\n", report.Local(s.since), it.ID)
	}
	if older {
		a.Advise(&b, "\nearlier attempts: ledgerd show %d -o json\n", it.ID)
	}
	for _, at := range s.Attempts {
		showAttempt(&b, at)
	}
	_, err := io.WriteString(a.Stdout, b.String())
	return err
}

// attemptsOf describes how many attempts an item had, by the number of its newest attempt. In a restored ledger the
// numbers have a gap and do not count attempts.
func attemptsOf(newest int64) string {
	if newest > maxCounted {
		return fmt.Sprintf("attempt %d", newest)
	}
	return report.Plural(newest, "attempt")
}

// maxCounted is below the numbers of all attempts that begin after a restore.
const maxCounted = 1_000_000

// shownWait is the shortest time from due to claim that people see.
const shownWait = time.Second

func showAttempt(b *strings.Builder, at answer.Attempt) {
	fmt.Fprintf(b, "\nattempt %d  %s  %s", at.Attempt, at.Outcome, report.Local(time.Time(at.Ended)))
	if started := time.Time(at.Started); !started.IsZero() {
		due := time.Time(at.Due)
		if waited := started.Sub(due); !due.IsZero() && waited >= shownWait {
			fmt.Fprintf(b, "  waited %s", report.Seconds(waited))
		}
		fmt.Fprintf(b, "  took %s", report.Seconds(time.Time(at.Ended).Sub(started)))
	}
	if at.Renewals > 0 {
		fmt.Fprintf(b, "  lease renewed %s", report.Plural(int64(at.Renewals), "time"))
	}
	fmt.Fprintf(b, "  by %s\n", report.Safe(strings.TrimSpace(at.Agent+"  "+at.Plugin)))
	problem := at.Error
	if at.Code != "" {
		problem = at.Code + report.Prefixed(": ", at.Error)
	}
	if problem != "" {
		for line := range strings.SplitSeq(problem, "\n") {
			fmt.Fprintf(b, "  %s\n", report.Safe(line))
		}
	}
	if len(at.Output) > 0 {
		fmt.Fprintf(b, "  output  %s\n", report.Safe(report.OneLine(at.Output)))
	}
	for line := range strings.SplitSeq(strings.TrimRight(at.Log, "\n"), "\n") {
		if line != "" {
			fmt.Fprintf(b, "  log     %s\n", report.Safe(line))
		}
	}
}

// whyRow is the reason why an item is in its state, with the commands of its acts.
type whyRow struct {
	answer.Why
	Next string `json:"next"`
}

// reason returns the reason why an item is in its state. It adds what the ledger cannot know: whether this machine has
// the plugin, and with which settings.
func reason(ctx context.Context, a *app.App, l ledgers.Any, it ledger.Item) (whyRow, error) {
	w, next, err := why(ctx, a, l, it)
	return whyRow{answer.NewWhy(it.ID, w), a.Typed(next)}, err
}

// why returns the reason, and the commands of its acts.
func why(ctx context.Context, a *app.App, l ledgers.Any, it ledger.Item) (w ledger.Reason, next string, err error) {
	w, err = l.Why(ctx, it.ID)
	next = app.Words(w.Acts...)
	if err != nil || w.Code != "no_worker" {
		return w, next, err
	}
	k, err := l.Kind(ctx, it.Kind)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return w, next, err
	}
	name, here := a.PluginOf(it.Kind, k)
	switch {
	case name == "":
		w.Acts = []ledgeract.Act{{Name: ledgeract.Claim, Kind: it.Kind}}
		return w, app.Words(w.Acts...), nil
	case !here:
		w.Code, w.Acts = health.NoPlugin, []ledgeract.Act{{Name: ledgeract.InstallPlugin, Plugin: name}}
		w.Text = fmt.Sprintf("It is ready, but no agent works kind %s now, and its plugin %s is not on this machine.", it.Kind,
			name)
		return w, app.Words(w.Acts...), nil
	}
	w.Acts = []ledgeract.Act{{Name: ledgeract.Work, Kind: it.Kind}}
	next, _ = a.Worker(ctx, it.Kind, k)
	return w, next, nil
}
