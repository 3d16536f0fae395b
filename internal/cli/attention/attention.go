// Package attention describes what in a ledger needs a person: the causes of dead items, items in doubt, paused kinds,
// kinds that no program works. It proposes a command for each.
package attention

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

const (
	causesTime  = 2 * time.Second // bounds the search for causes in the dead items of a kind
	shownCauses = 3               // causes that are named
	fewDead     = 10              // up to so many dead items are retried without a --limit
)

// DeadOf describes the dead items of a kind by their causes, and a command that retries a few items of the most
// frequent cause. It reads dead items from the newest id on, for causesTime.
func DeadOf(ctx context.Context, l ledgers.Any, c stats.Counts) (what, next string, err error) {
	w := &ledger.Walk{Desc: true, Time: causesTime,
		Filter: ledger.Filter{Kinds: []string{c.Kind}, States: []ledger.State{ledger.StateDead}}}
	var causes report.Failures
	if err := answer.AddFailures(ctx, l, w, &causes); err != nil {
		return "", "", err
	}
	list := causes.List()
	var parts []string
	for i, g := range list[:min(len(list), shownCauses)] {
		message, _, _ := strings.Cut(g.Message, "\n")
		part := report.Count(g.Count) + " × " + cmp.Or(g.Code, message)
		if w.Cut {
			part = "≥ " + part
		}
		isUnclear := i == 0 || withCode(list, g.Code) > 1 // a code of one cause names that cause
		if isUnclear && g.Code != "" && message != "" {
			part += " (" + report.Cut(message, 60) + ")"
		}
		parts = append(parts, part)
	}
	if n := len(list) - shownCauses; n > 0 {
		further := report.Plural(int64(n), "further cause")
		if w.Cut {
			further = "≥ " + further
		}
		parts = append(parts, further)
	}
	what = fmt.Sprintf("%s: %s dead%s", c.Kind, report.Count(c.Dead), report.Prefixed(": ", strings.Join(parts, ", ")))
	where := "kind:" + c.Kind + " state:dead"
	if len(list) > 1 && (list[0].Code == "" || withCode(list, list[0].Code) > 1) {
		where += report.Prefixed(" cause:", list[0].Cause)
	} else if len(list) > 0 {
		where += report.Prefixed(" code:", list[0].Code)
	}
	if c.Dead > fewDead {
		return what, "once the cause is mended, try ten: ledgerd retry --where " + shell.Quote(where) + " --limit 10 --watch", nil
	}
	return what, "once the cause is mended: ledgerd retry --where " + shell.Quote(where) + " --watch", nil
}

// DoubtOf describes the items of a kind that are in doubt, and what a person does about them.
func DoubtOf(c stats.Counts) (what, next string) {
	return fmt.Sprintf("%s: %s in doubt", c.Kind, report.Count(c.Doubt)),
		fmt.Sprintf("ledgerd ls --kind %s --state doubt, then retry, cancel or finish", c.Kind)
}

// withCode returns how many causes have a code.
func withCode(list []report.Failure, code string) (n int) {
	for _, g := range list {
		if g.Code == code {
			n++
		}
	}
	return n
}

// Worked reports whether one of the live agents works a kind.
func Worked(kind string, live []ledger.Agent) bool {
	return slices.ContainsFunc(live, func(a ledger.Agent) bool { _, ok := a.Kinds[kind]; return ok })
}

// KindOf returns the kind of a name, a zero Kind if there is none.
func KindOf(name string, kinds []ledger.Kind) (k ledger.Kind) {
	if i := slices.IndexFunc(kinds, func(k ledger.Kind) bool { return k.Name == name }); i >= 0 {
		k = kinds[i]
	}
	return k
}

// HeldUp returns why no program works the items of a kind that are left, and the command that helps. Both are "" if a
// program works them or none are left. pause is the journal entry of the pause; worker returns the command that works
// the kind, and whether a plugin works it.
func HeldUp(c stats.Counts, k ledger.Kind, pause ledger.JournalEntry, live []ledger.Agent,
	worker func(kind string, k ledger.Kind) (command string, byPlugin bool)) (what, next string) {
	var left []string
	for _, s := range []struct {
		n    int64
		name string
	}{{c.Ready, "ready"}, {c.Waiting, "waiting"}, {c.Dead, "dead"}} {
		if s.n > 0 {
			left = append(left, report.Count(s.n)+" "+s.name)
		}
	}
	switch {
	case k.Paused && len(left) > 0:
		return fmt.Sprintf("kind %s is paused%s: %s", c.Kind, report.Prefixed(" ", ByWhom(pause)),
			strings.Join(left, ", ")), "ledgerd kind resume " + c.Kind
	case c.Ready > 0 && !Worked(c.Kind, live):
		if command, byPlugin := worker(c.Kind, k); byPlugin {
			return fmt.Sprintf("no program works kind %s: %s", c.Kind, strings.Join(left, ", ")), command
		}
	}
	return "", ""
}

// ByWhom describes a pause: "by operator:ann since 02:10 (disk full)". It returns "" if the journal has no entry of it.
func ByWhom(pause ledger.JournalEntry) string {
	if pause.Actor == "" {
		return ""
	}
	reason := ""
	if pause.Detail != "" {
		reason = " (" + pause.Detail + ")"
	}
	return fmt.Sprintf("by %s since %s%s", pause.Actor, report.Local(pause.At), reason)
}
