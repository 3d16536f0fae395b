package work

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
)

// addSummary is what add prints with -o json.
type addSummary struct {
	Added    int64             `json:"added"`
	Changed  int64             `json:"changed"`
	Reopened int64             `json:"reopened"`
	Known    int64             `json:"known"`
	Differs  int64             `json:"differs"`
	DryRun   bool              `json:"dry_run"`
	Listed   int64             `json:"listed"`         // inputs of which items can be made
	Seed     string            `json:"seed,omitempty"` // of a sample
	NotTaken []intake.NotTaken `json:"not_taken"`
	BadLines []intake.BadLine  `json:"bad_lines"`
}

// reportAdd prints what add did, and returns the exit status.
func reportAdd(a *app.App, p *report.Printer, j *input.Job, d *intake.Adder) error {
	sum := addSummary{d.Counts[ledger.VerdictAdded], d.Counts[ledger.VerdictChanged], d.Counts[ledger.VerdictReopened],
		d.Counts[ledger.VerdictKnown], d.Counts[ledger.VerdictDiffers], j.Flags.DryRun, d.Listed(), j.Flags.Seed,
		report.OrEmpty(d.NotTaken), report.OrEmpty(d.BadLines)}
	switch p.Format {
	case report.JSON:
		if err := p.Object(sum); err != nil {
			return err
		}
	case report.JSONL, report.CSV: // the rows have been printed
		complain(a, d)
	case report.Table:
		complain(a, d)
		if d.Total() == 0 {
			if d.Bad+d.Wrong > 0 {
				fmt.Fprintln(a.Stdout, "added 0")
			}
			if err := sayNothing(a, d); err != nil {
				return err
			}
			break
		}
		fmt.Fprintln(a.Stdout, sentence(j, d))
	}
	sayUnmoved(a, j, d)
	if !a.Quiet {
		if n := d.Counts[ledger.VerdictDiffers]; n > 0 && !j.Flags.DryRun {
			a.Advise(a.Stderr, "%s known with settings of their own, which they keep; ledgerd run with the same words works those "+
				"that failed with the settings of this command\n", report.Plural(n, "input"))
		}
		sayCancelled(a, a.Stderr, j.Kind.Name, d.Cancelled)
	}
	switch {
	case d.Bad+d.Wrong > 0:
		return failure.Status(failure.ExitUnfinished)
	case d.Total() == 0 && a.ErrorOnEmpty:
		return failure.Status(failure.ExitEmpty)
	}
	return nil
}

// sayUnmoved explains that --due did not change items that are known.
func sayUnmoved(a *app.App, j *input.Job, d *intake.Adder) {
	due := j.Flags.Flags.Lookup("due")
	known := d.Counts[ledger.VerdictKnown] + d.Counts[ledger.VerdictDiffers]
	if known > 0 && due != nil && due.Changed && !a.Quiet {
		a.Advise(a.Stderr, "%s not moved: --due is for items that are added, changed or opened again (--again); "+
			"put known ones off: ledgerd retry --due %s …\n", report.Plural(known,
			"known item"), shell.Quote(due.Value.String()))
	}
}

// maxNamed is how many ids a hint names.
const maxNamed = 5

// sayCancelled explains that known items stay cancelled: neither a list nor the next round makes them ready.
func sayCancelled(a *app.App, out io.Writer, kind string, ids []int64) {
	switch n := len(ids); {
	case n == 0:
	case n > maxNamed:
		a.Advise(out, "%s of the known are cancelled, and left so: ledgerd ls --where 'kind:%s state:cancelled'; to have one "+
			"worked: ledgerd retry %d --again\n", report.Count(int64(n)), kind, ids[0])
	default:
		are, them := "are", "them"
		if n == 1 {
			are, them = "is", "it"
		}
		words := make([]string, n)
		for i, id := range ids {
			words[i] = strconv.FormatInt(id, 10)
		}
		a.Advise(out, "%d of the known %s cancelled, and left so; to have %s worked: ledgerd retry %s --again\n", n, are,
			them, strings.Join(words, " "))
	}
}

// sentence returns "added 214   known 3"; of a dry run or a sample also how many inputs the list has.
func sentence(j *input.Job, d *intake.Adder) string {
	text := verdictLine(d.Counts)
	if j.Flags.DryRun && !strings.HasPrefix(text, "added") {
		text = "would have added 0   " + text
	} else if j.Flags.DryRun {
		text = "would have " + text
	}
	if n := d.Listed(); j.Flags.DryRun || j.Flags.Sample > 0 {
		text += fmt.Sprintf("   of %s listed", report.Count(n))
		if differs := d.Counts[ledger.VerdictDiffers]; differs > 0 { // these are known, too
			text += fmt.Sprintf(", %s known", report.Count(differs+d.Counts[ledger.VerdictKnown]))
		}
	}
	if j.Flags.Sample > 0 {
		text += "   sample --seed " + shell.Quote(j.Flags.Seed)
		if have := int64(j.Flags.Sample - d.Draw.Want); have > 0 {
			text += fmt.Sprintf(", of which %s were there", report.Count(have))
		}
	}
	return text
}

// verdictLine returns "added 214   known 3", without verdicts that no input got. "added 0" stands before known ones.
func verdictLine(counts map[ledger.Verdict]int64) string {
	var parts []string
	for _, v := range []ledger.Verdict{ledger.VerdictAdded, ledger.VerdictChanged, ledger.VerdictReopened,
		ledger.VerdictKnown, ledger.VerdictDiffers} {
		if counts[v] > 0 || v == ledger.VerdictAdded && counts[ledger.VerdictKnown] > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", v, report.Count(counts[v])))
		}
	}
	return strings.Join(parts, "   ")
}

// complain prints the lines that were bad, and the inputs that were not taken.
func complain(a *app.App, d *intake.Adder) {
	if a.Quiet {
		return
	}
	for i, b := range d.BadLines {
		if i == 10 {
			fmt.Fprintf(a.Stderr, "… and %s\n", report.Plural(d.Bad-10, "more bad line"))
			break
		}
		fmt.Fprintln(a.Stderr, report.Safe(b.Error()))
	}
	complainOf(a, d, d.Wrong, 10, func(t intake.NotTaken) bool { return t.Wrong })
	// Files that a pattern leaves out are expected; a link or an unfinished file may come as a surprise.
	complainOf(a, d, d.Left-d.NoMatch-d.Excluded-d.Wrong, 3, func(t intake.NotTaken) bool {
		return !t.Wrong && t.Reason != intake.NoMatch && t.Reason != intake.Excluded
	})
}

// complainOf names the first inputs, up to most, that were not taken and for which include is true. It counts the
// others by reason. total is how many there are, also beyond d.NotTaken.
func complainOf(a *app.App, d *intake.Adder, total int64, most int, include func(intake.NotTaken) bool) {
	var named int64
	var reasons []string
	rest := map[string]int64{}
	for _, t := range d.NotTaken {
		switch {
		case !include(t):
			continue
		case named < int64(most):
			fmt.Fprintf(a.Stderr, "not taken: %s: %s\n", report.Safe(t.Input), t.Reason)
		default:
			if rest[t.Reason]++; rest[t.Reason] == 1 {
				reasons = append(reasons, t.Reason)
			}
		}
		named++
	}
	for _, reason := range reasons {
		fmt.Fprintf(a.Stderr, "not taken: %s: %s\n", report.Plural(rest[reason], "more input"), reason)
	}
	if total > named { // d.NotTaken has only the first ones
		fmt.Fprintf(a.Stderr, "not taken: %s\n", report.Plural(total-named, "more input"))
	}
}

// sayNothing explains why no input made an item, and returns the exit status for that.
func sayNothing(a *app.App, d *intake.Adder) error {
	switch {
	case d.Bad+d.Wrong > 0:
		return nil // complain has printed the reasons
	case a.Quiet:
	case d.Left == 0:
		fmt.Fprintln(a.Stderr, "ledgerd: nothing to do: no input in what was named")
	default:
		patterns := ""
		if match := d.Source.Input.Match; d.NoMatch > 0 && len(match) > 0 {
			patterns = ", none matches " + strings.Join(match, " ")
		}
		if d.Excluded > 0 {
			patterns += fmt.Sprintf(", %s excluded", report.Count(d.Excluded))
		}
		fmt.Fprintf(a.Stderr, "ledgerd: nothing to do: %s in %s%s\n", report.Plural(d.Left, "file"),
			strings.Join(d.Source.Args, " "), patterns)
		for _, t := range d.NotTaken {
			if t.Reason == intake.NoMatch {
				fmt.Fprintf(a.Stderr, "  e.g. %s    other names: --include '*%s'    name a file itself to take it anyway\n",
					report.Safe(t.Input), ext(t.Input))
				break
			}
		}
	}
	return a.OrExitEmpty(0, nil)
}

// ext returns the end of a file's name from its last dot on, for an example of a pattern.
func ext(name string) string {
	base := name[strings.LastIndexByte(name, '/')+1:]
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		return report.Safe(base[i:])
	}
	return ""
}
