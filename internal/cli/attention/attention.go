// Package attention words what of a ledger needs a person: the causes of dead items, paused kinds, kinds that no
// program works, each with the command that comes next.
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
	causesTime  = 2 * time.Second // for which the causes of what is dead are looked for, of each kind
	causesParts = 20              // of the ids at most, each of which gets its part of that time
	causesEach  = 1000            // items for one part: few items are read all at once, however slow the machine is
	shownCauses = 3               // how many are named
	fewDead     = 10              // so few are tried all at once
)

// Dead is what is dead of a kind.
type Dead struct {
	What string // how many items, and of which causes
	Next string // how one goes on: the command that tries a few of the most frequent cause
	// GiveUp is the command that gives up one cause, the least frequent of those that What names. It is "" unless that
	// has a code which stands for just as many items as What tells.
	GiveUp string
}

// DeadOf describes what is dead of a kind.
func DeadOf(ctx context.Context, l ledgers.Any, c stats.Counts) (Dead, error) {
	f := ledger.Filter{Kinds: []string{c.Kind}, States: []ledger.State{ledger.StateDead}}
	list, cut, err := causesOf(ctx, l, f, min(causesParts, 1+c.Dead/causesEach), causesTime)
	if err != nil {
		return Dead{}, err
	}
	var parts []string
	for i, g := range list[:min(len(list), shownCauses)] {
		message, _, _ := strings.Cut(g.Message, "\n")
		part := report.Count(g.Count) + " × " + cmp.Or(g.Code, message)
		if cut {
			part = "≥ " + part
		}
		if (i == 0 || withCode(list, g.Code) > 1) && g.Code != "" && message != "" { // the code alone names it else
			part += " (" + report.Cut(message, 60) + ")"
		}
		parts = append(parts, part)
	}
	if n := len(list) - shownCauses; n > 0 {
		parts = append(parts, report.Plural(int64(n), "further cause"))
	}
	d := Dead{What: fmt.Sprintf("%s: %s dead%s", c.Kind, report.Count(c.Dead),
		report.Prefixed(": ", strings.Join(parts, ", ")))}
	of := func(cause report.Failure) string {
		term := report.Prefixed(" code:", cause.Code)
		if withCode(list, cause.Code) > 1 {
			term = report.Prefixed(" cause:", cause.Cause)
		}
		return " --where " + shell.Quote("kind:"+c.Kind+" state:dead"+term)
	}
	var first report.Failure
	if len(list) > 0 {
		first = list[0]
		if rare := list[min(len(list), shownCauses)-1]; rare.Code != "" && !cut && withCode(list, rare.Code) == 1 {
			d.GiveUp = "ledgerd cancel" + of(rare)
		}
	}
	d.Next = "once the cause is mended: ledgerd retry" + of(first) + " --watch"
	if c.Dead > fewDead {
		d.Next = "once the cause is mended, try ten: ledgerd retry" + of(first) + " --limit 10 --watch"
	}
	return d, nil
}

// DoubtOf describes what is in doubt of a kind, and what a person does about it.
func DoubtOf(c stats.Counts) (what, next string) {
	return fmt.Sprintf("%s: %s in doubt", c.Kind, report.Count(c.Doubt)),
		fmt.Sprintf("ledgerd ls --kind %s --state doubt, then retry, cancel or finish", c.Kind)
}

// withCode is how many causes have a code.
func withCode(list []report.Failure, code string) (n int) {
	for _, g := range list {
		if g.Code == code {
			n++
		}
	}
	return n
}

// causesOf are the causes of what matches, the most frequent first. If there is more than it can look at in a time, it
// looks at the beginnings of equal parts of the ids, so that no cause is favoured by its age, and cut is true.
func causesOf(ctx context.Context, l ledgers.Any, f ledger.Filter, parts int64,
	within time.Duration) (list []report.Failure, cut bool, err error) {
	first, err := end(ctx, l, f, false)
	if err != nil || first == 0 {
		return nil, false, err
	}
	last, err := end(ctx, l, f, true)
	if err != nil {
		return nil, false, err
	}
	var causes report.Failures
	step := (last-first)/parts + 1
	for from := first - 1; from < last; from += step {
		w := &ledger.Walk{Filter: f.And(ledger.Filter{Above: from, UpTo: from + step}), Time: within / time.Duration(parts)}
		if err := answer.AddFailures(ctx, l, w, &causes); err != nil {
			return nil, false, err
		}
		cut = cut || w.Cut
	}
	return causes.List(), cut, nil
}

// end is the lowest id of what matches, or the greatest one; 0 if nothing does.
func end(ctx context.Context, l ledgers.Any, f ledger.Filter, greatest bool) (int64, error) {
	for it, err := range l.Walk(ctx, &ledger.Walk{Filter: f, Desc: greatest}) {
		return it.ID, err
	}
	return 0, nil
}

// HeldUp returns why no program works what is left of a kind, "" if one does or nothing is left, and the command
// that helps. pause is who paused it, worker the command that works it, and whether a plugin does.
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
	works := slices.ContainsFunc(live, func(a ledger.Agent) bool { _, ok := a.Kinds[c.Kind]; return ok })
	switch {
	case k.Paused && len(left) > 0:
		return fmt.Sprintf("kind %s is paused%s: %s", c.Kind, report.Prefixed(" ", ByWhom(pause)),
			strings.Join(left, ", ")), "ledgerd kind resume " + c.Kind
	case c.Ready > 0 && !works:
		if command, byPlugin := worker(c.Kind, k); byPlugin {
			return fmt.Sprintf("no program works kind %s: %s", c.Kind, strings.Join(left, ", ")), command
		}
	}
	return "", ""
}

// ByWhom returns who made a pause, when and why: "by operator:ann since 02:10 (disk full)". It is "" if the journal
// has none.
func ByWhom(pause ledger.JournalEntry) string {
	if pause.Actor == "" {
		return ""
	}
	reason := ""
	if pause.Detail != "" {
		reason = " (" + pause.Detail + ")"
	}
	return fmt.Sprintf("by %s since %s%s", pause.Actor, new(report.Printer).Local(pause.At), reason)
}
