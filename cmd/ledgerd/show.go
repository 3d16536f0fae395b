package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// shown is all that show says about an item.
type shown struct {
	Item     shownItem    `json:"item"`
	Attempts []attemptRow `json:"attempts"`
	Why      whyRow       `json:"why"`
	Journal  []journalRow `json:"journal"` // what people did to it, newest first
}

type shownItem struct {
	itemRow
	Fingerprint string       `json:"fingerprint"`
	Every       string       `json:"every"`
	Zone        string       `json:"zone"`
	Source      string       `json:"source"`
	Crashes     int          `json:"crashes"`
	Losses      int          `json:"losses"`
	Slot        int          `json:"slot"`
	Resources   []string     `json:"resources"`
	Pruned      bool         `json:"pruned"` // the payload was removed
	Payload     report.Bytes `json:"payload"`
}

type attemptRow struct {
	Attempt int64          `json:"attempt"`
	Round   string         `json:"round"`
	Agent   string         `json:"agent"`
	Plugin  string         `json:"plugin"`
	Started report.Time    `json:"started_at"`
	Ended   report.Time    `json:"ended_at"`
	Outcome ledger.Outcome `json:"outcome"`
	Code    string         `json:"code"`
	Error   string         `json:"error"`
	Output  report.Bytes   `json:"output"`
	Log     string         `json:"log"`
}

func (a *app) showCommand() *cobra.Command {
	var kinds, scopes []string
	cmd := &cobra.Command{
		Use: "show ID|KEY", Short: "Show one item: why it is where it is, and every attempt with log and output", GroupID: groupLook, Args: arguments(1, 1),
		Long: `Shows an item, named by its id or by its key: a path or URL as typed. The first lines say what the item
waits for, who has it, or what became of it; "next:" names the command that would help.

With -o json: {"item":{…},"attempts":[{"attempt","round","agent","plugin","started_at","ended_at",
"outcome","code","error","output","log"}],"why":{"id","state","code","text","since","until","next"},
"journal":[{"id","at","actor","action","subject","detail","changed"}]}: the last acts of people on it.

Codes of why: leased (an agent works on it), due (later), backoff (it failed and will be tried again),
next (it recurs), paused (its kind is paused), resource (another item holds what it needs),
max_running, rate (limits of its kind), shard (no agent works its shard), nobody (no agent works its
kind), no_plugin (no agent works its kind, and the plugin is not on this machine), breaker (its plugin crashes again and
again on every machine), behind (other items come first), dead, doubt, done, cancelled.`,
		Example: "  ledgerd show inbox/march/leads-03.csv\n  ledgerd show 17 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer l.Close()
			it, err := find(cmd.Context(), l.Ledger, args[0], kinds, scopes)
			if err != nil {
				return err
			}
			return a.show(cmd.Context(), l.Ledger, it)
		},
	}
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "of these `kinds`, where a key has items of several")
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "of these `scopes`")
	return cmd
}

func (a *app) show(ctx context.Context, l *ledger.Ledger, it ledger.Item) error {
	attempts, err := l.Attempts(ctx, it.ID)
	if err != nil {
		return err
	}
	why, err := a.reason(ctx, l, it)
	if err != nil {
		return err
	}
	s := shown{Item: shownItem{itemRow: newItemRow(it), Fingerprint: it.Fingerprint, Every: it.Every, Zone: it.Zone, Source: it.Source,
		Crashes: it.Crashes, Losses: it.Losses, Slot: it.Slot, Resources: append([]string{}, it.Resources...), Pruned: it.Pruned, Payload: []byte(redact.URLs(string(it.Payload)))},
		Attempts: []attemptRow{}, Journal: []journalRow{},
		Why: newWhyRow(it.ID, why)}
	for _, at := range attempts {
		s.Attempts = append(s.Attempts, attemptRow{at.Attempt, at.Round, at.Agent, at.Worker, report.Time(at.LeasedAt), report.Time(at.FinishedAt),
			at.Outcome, at.Code, at.Error, at.Output, at.Log})
	}
	acts, err := l.Journal(ctx, ledger.JournalQuery{Item: it.ID, Since: it.CreatedAt, Limit: shownActs})
	if err != nil {
		return err
	}
	for _, e := range acts {
		s.Journal = append(s.Journal, newJournalRow(e))
	}
	p := a.printer()
	switch p.Format {
	case report.Table:
		return a.showText(p, s)
	case report.CSV:
		return usage("bad_flag", "", "show has more than rows: -o table, json or jsonl")
	}
	return p.Object(s)
}

// shownActs is how many acts of people on an item are shown, the newest ones.
const shownActs = 10

// shownAttempts is how many attempts people see, the newest ones.
const shownAttempts = 10

// showText is show for people.
func (a *app) showText(p *report.Printer, s shown) error {
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
	field("state", fmt.Sprintf("%s, round %s, %s", it.State, round, plural(it.Attempt, "attempt")))
	field("every", strings.TrimSpace(it.Every+" "+it.Zone))
	if it.Pruned {
		field("payload", "pruned")
	}
	field("payload", brief(it.Payload))
	field("needs", strings.Join(it.Resources, ", "))
	field("added", p.Local(time.Time(it.Added))+prefixed(" from ", it.Source))
	fmt.Fprintf(&b, "\n%s\n", report.Safe(s.Why.Text))
	if s.Why.Next != "" {
		fmt.Fprintf(&b, "next: %s\n", s.Why.Next)
	}
	for i, e := range s.Journal {
		lead := ""
		if i == 0 {
			lead = "\n"
		}
		fmt.Fprintf(&b, "%s%s by %s  %s\n", lead, e.Action, report.Safe(e.Actor), p.Local(time.Time(e.At)))
	}
	attempts := s.Attempts
	if n := len(attempts) - shownAttempts; n > 0 {
		fmt.Fprintf(&b, "\n%s: ledgerd show %d -o json\n", plural(int64(n), "earlier attempt"), it.ID)
		attempts = attempts[n:]
	}
	for _, at := range attempts {
		showAttempt(&b, p, at)
	}
	_, err := io.WriteString(a.stdout, b.String())
	return err
}

func showAttempt(b *strings.Builder, p *report.Printer, at attemptRow) {
	fmt.Fprintf(b, "\nattempt %d  %s  %s", at.Attempt, at.Outcome, p.Local(time.Time(at.Ended)))
	if started := time.Time(at.Started); !started.IsZero() {
		fmt.Fprintf(b, "  took %s", seconds(time.Time(at.Ended).Sub(started)))
	}
	fmt.Fprintf(b, "  by %s", report.Safe(strings.TrimSpace(at.Agent+"  "+at.Plugin)))
	b.WriteByte('\n')
	if text := strings.TrimPrefix(prefixed(": ", at.Error), map[bool]string{true: ": "}[at.Code == ""]); at.Code+text != "" {
		for line := range strings.SplitSeq(at.Code+text, "\n") {
			fmt.Fprintf(b, "  %s\n", report.Safe(line))
		}
	}
	if len(at.Output) > 0 {
		fmt.Fprintf(b, "  output  %s\n", report.Safe(brief(at.Output)))
	}
	for line := range strings.SplitSeq(strings.TrimRight(at.Log, "\n"), "\n") {
		if line != "" {
			fmt.Fprintf(b, "  log     %s\n", report.Safe(line))
		}
	}
}

// brief is JSON on one line, as far as a person reads on.
func brief(raw report.Bytes) string {
	const most = 2000
	text, err := raw.MarshalJSON()
	var compact bytes.Buffer
	if err != nil || len(raw) == 0 || json.Compact(&compact, text) != nil {
		return ""
	}
	if s := compact.String(); len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(compact.String()[:most], "") + "… (-o json has all of it)"
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return report.Count(n) + " " + noun + "s"
}

// seconds is a duration for people: "0.2 s", "3 m 20 s".
func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
