package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/inputs"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
)

// mostNoted bounds how many inputs that were not taken, or bad lines, are kept by name.
const mostNoted = 100

// notTaken and badLine are what a summary says of inputs that made no item.
type notTaken struct {
	Input  string `json:"input"`
	Reason string `json:"reason"`
}

type badLine struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// adder reads a source and adds what it holds, as much at a time as is there.
type adder struct {
	source *inputs.Source
	add    func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error)
	// each is called with every input and the answer for it; may be nil.
	each func(input string, a ledger.Added) error
	// draw takes a part of what the source holds; nil takes all.
	draw *draw

	counts   map[ledger.Verdict]int64
	notTaken []notTaken // the first ones …
	left     int64      // … and how many there are
	noMatch  int64      // of these: those that fit no pattern
	excluded int64      // … that --exclude leaves out
	missing  int64      // … patterns that match nothing
	badLines []badLine
	bad      int64
}

// batch is how many items are added in one transaction.
const batch = 1000

type read struct {
	found inputs.Found
	err   error
}

// run adds everything. The source is read by a goroutine of its own, so that what came is added
// while more is being waited for. When ctx ends while stdin is silent, that goroutine stays
// behind until something comes or the program ends.
func (d *adder) run(ctx context.Context) error {
	d.counts = map[ledger.Verdict]int64{}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	reads := make(chan read, batch)
	go func() {
		defer close(reads)
		for found, err := range d.source.Items(reading) {
			select {
			case reads <- read{found, err}:
			case <-reading.Done():
				return
			}
		}
	}()
	for {
		var names []string
		var items []ledger.NewItem
		more, err := gather(ctx, reads, func(r read) error {
			if r.err != nil {
				return d.note(r.err)
			}
			names = append(names, r.found.Input)
			items = append(items, r.found.Item)
			return nil
		})
		switch {
		case err != nil || len(items) == 0:
		case d.draw != nil:
			err = d.draw.offer(ctx, names, items)
		default:
			err = d.take(ctx, names, items)
		}
		if err == nil && !more && d.draw != nil {
			err = d.takeDrawn(ctx)
		}
		if err != nil || !more {
			return err
		}
	}
}

// takeDrawn adds what was drawn, and for what others have added meanwhile the next ones. Others may
// draw the same sample: what it lacks is counted anew where somebody else has added something, so that
// all go through the same inputs, in the same order, to the same end.
func (d *adder) takeDrawn(ctx context.Context) error {
	rest := d.draw.chosen()
	left, err := d.draw.missing(ctx)
	if err != nil {
		return err
	}
	for left > 0 && len(rest) > 0 {
		n := min(left, batch, len(rest))
		before := d.counts[ledger.VerdictAdded]
		var names []string
		var items []ledger.NewItem
		for _, c := range rest[:n] {
			names, items = append(names, c.input), append(items, c.item)
		}
		if err := d.take(ctx, names, items); err != nil {
			return err
		}
		rest = rest[n:]
		if left -= n; int(d.counts[ledger.VerdictAdded]-before) < n {
			if left, err = d.draw.missing(ctx); err != nil {
				return err
			}
		}
	}
	d.counts[ledger.VerdictKnown] += d.draw.known
	return nil
}

// linger is how long an input waits for others to be added with it.
const linger = 10 * time.Millisecond

// gather waits for something to be read and takes what else comes soon, up to a batch.
func gather(ctx context.Context, reads <-chan read, take func(read) error) (more bool, err error) {
	var late <-chan time.Time
	for range batch {
		select {
		case r, ok := <-reads:
			if !ok {
				return false, nil
			}
			if err := take(r); err != nil {
				return false, err
			}
		case <-late:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if late == nil {
			late = time.After(linger)
		}
	}
	return true, nil
}

func (d *adder) take(ctx context.Context, names []string, items []ledger.NewItem) error {
	added, err := d.add(ctx, items)
	if err != nil {
		return err
	}
	for i, a := range added {
		d.counts[a.Verdict]++
		if d.each != nil {
			if err := d.each(names[i], a); err != nil {
				return err
			}
		}
	}
	return nil
}

// note keeps what the source said about an input that makes no item; other errors end it.
func (d *adder) note(err error) error {
	if nt, ok := errors.AsType[*inputs.NotTaken](err); ok {
		if d.left++; len(d.notTaken) < mostNoted {
			d.notTaken = append(d.notTaken, notTaken{nt.Input, nt.Reason})
		}
		switch nt.Reason {
		case inputs.NoMatch:
			d.noMatch++
		case inputs.Excluded:
			d.excluded++
		case inputs.MatchesNothing:
			d.missing++
		}
		return nil
	}
	if bl, ok := errors.AsType[*inputs.BadLine](err); ok {
		if d.bad++; len(d.badLines) < mostNoted {
			d.badLines = append(d.badLines, badLine(*bl))
		}
		return nil
	}
	return queryError(err)
}

// total is how many inputs made items.
func (d *adder) total() (n int64) {
	for _, c := range d.counts {
		n += c
	}
	return n
}

// listed is how many inputs there were of which items can be made.
func (d *adder) listed() int64 {
	if d.draw != nil {
		return d.draw.listed
	}
	return d.total()
}

// complain tells a person which lines were bad, and what of a folder was left out.
func (d *adder) complain(a *app) {
	if a.quiet {
		return
	}
	for i, b := range d.badLines {
		if i == 10 {
			fmt.Fprintf(a.stderr, "… and %s\n", plural(d.bad-10, "more bad line"))
			break
		}
		fmt.Fprintln(a.stderr, report.Safe((*inputs.BadLine)(&b).Error()))
	}
	if others := d.left - d.noMatch - d.excluded; others > 0 { // of which nobody knows yet
		n := 0
		for _, t := range d.notTaken {
			if t.Reason != inputs.NoMatch && t.Reason != inputs.Excluded && n < 3 {
				fmt.Fprintf(a.stderr, "not taken: %s: %s\n", report.Safe(t.Input), t.Reason)
				n++
			}
		}
		if rest := others - int64(n); rest > 0 {
			fmt.Fprintf(a.stderr, "not taken: %s\n", plural(rest, "more file"))
		}
	}
}

// nothing says why there was nothing to do.
func (d *adder) nothing(a *app) error {
	switch {
	case d.bad+d.missing > 0:
		return nil // that has been said
	case d.left == 0:
		fmt.Fprintln(a.stderr, "ledgerd: nothing to do: no input in what was named")
	default:
		patterns := ""
		if match := d.source.Input.Match; d.noMatch > 0 && len(match) > 0 {
			patterns = ", none matches " + strings.Join(match, " ")
		}
		if d.excluded > 0 {
			patterns += fmt.Sprintf(", %s excluded", report.Count(d.excluded))
		}
		fmt.Fprintf(a.stderr, "ledgerd: nothing to do: %s in %s%s\n", plural(d.left, "file"), strings.Join(d.source.Args, " "), patterns)
		for _, t := range d.notTaken {
			if t.Reason == inputs.NoMatch {
				fmt.Fprintf(a.stderr, "  e.g. %s    other names: --include '*%s'    name a file itself to take it anyway\n", report.Safe(t.Input), ext(t.Input))
				break
			}
		}
	}
	if a.errorOnEmpty {
		return status(exitEmpty)
	}
	return nil
}

// ext is the last part of a file's name after a dot, for an example of a pattern.
func ext(name string) string {
	base := name[strings.LastIndexByte(name, '/')+1:]
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		return report.Safe(base[i:])
	}
	return ""
}

// addSummary is what add prints with -o json.
type addSummary struct {
	Added    int64      `json:"added"`
	Changed  int64      `json:"changed"`
	Reopened int64      `json:"reopened"`
	Known    int64      `json:"known"`
	Differs  int64      `json:"differs"`
	DryRun   bool       `json:"dry_run"`
	Listed   int64      `json:"listed"`         // inputs of which items can be made
	Seed     string     `json:"seed,omitempty"` // of a sample
	NotTaken []notTaken `json:"not_taken"`
	BadLines []badLine  `json:"bad_lines"`
}

// addRow is what add prints with -o jsonl and csv, for each input.
type addRow struct {
	Input   string         `json:"input"`
	ID      int64          `json:"id"`
	Verdict ledger.Verdict `json:"verdict"`
	State   ledger.State   `json:"state"`
}

func (a *app) addCommand() *cobra.Command {
	var s sourceFlags
	var due string
	cmd := &cobra.Command{
		Use: "add KIND INPUT…", Short: "Add items, to be worked by whoever works the ledger", GroupID: groupWork, Args: arguments(1, -1),
		Long: `Adds inputs as run does, and works nothing. A known item is left as it is, unless what it points
at has changed.

A list may be a saved query, --from FILE: its column key is the INPUT, fingerprint, shard_key and
priority are those of the item, the others are fields of the payload, beside --set; a NULL is left out.
It runs where it can only read, in the ledger's database unless --query-db names another one. Rows without a key,
or that break a rule, are bad lines, by their number in the result; a key that is named twice is known the second
time.

With --sample N only N of the inputs are added: by chance, of those that the scope does not have yet. --seed
names the sample: run again, it is completed, and the same everywhere.

With -o json: {"added","changed","reopened","known","differs","dry_run","listed","seed","not_taken","bad_lines"};
with -o jsonl and csv a row for each input: input, id, verdict, state.`,
		Example: "  ledgerd add urlcheck links.txt --due 2h\n  find . -name '*.csv' | ledgerd add filecsv -\n" +
			"  ledgerd add mail --scope kitty-lovers --from lists/sydney.sql --sample 1000 --seed a --set template=a",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.addInputs(cmd.Context(), s, args[0], args[1:], due)
		},
	}
	s.define(cmd)
	cmd.Flags().StringVar(&due, "due", "", "not before this `time`: a duration (2h) or 2026-11-20T10:00:00Z")
	return cmd
}

// parseDue reads a duration from now, or a time.
func parseDue(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := ledger.ParseDuration(text); err == nil {
		return time.Now().Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, usage("bad_flag", "", "--due %s: neither a duration (2h, 7d) nor a time (2026-11-20, 2026-11-20T10:00:00Z)", text)
}

func (a *app) addInputs(ctx context.Context, s sourceFlags, name string, args []string, due string) error {
	at, err := parseDue(due)
	if err != nil {
		return err
	}
	j, err := a.prepare(ctx, s, name, args, nil)
	if err != nil {
		return err
	}
	defer j.close()
	j.source.Template.Due = at
	if !j.flags.dryRun {
		if err := a.introduce(ctx, j.ledger.Ledger, j.kind); err != nil {
			return err
		}
		if err := j.kind.remember(ctx, j.ledger.Ledger, j.flags.set); err != nil {
			return err
		}
	}
	p := a.printer()
	d, err := j.adder(ctx)
	if err != nil {
		return err
	}
	var rows *report.Rows[addRow]
	if p.Format == report.JSONL || p.Format == report.CSV {
		if rows, err = report.NewRows[addRow](p, nil, nil); err != nil {
			return err
		}
		d.each = func(input string, ad ledger.Added) error {
			return rows.Write(addRow{input, ad.ID, ad.Verdict, ad.State})
		}
	}
	err = d.run(ctx)
	if rows != nil {
		err = errors.Join(err, rows.Close())
	}
	if err != nil {
		return err
	}
	return a.reportAdd(p, j, d)
}

// reportAdd says what add did.
func (a *app) reportAdd(p *report.Printer, j *job, d *adder) error {
	sum := addSummary{d.counts[ledger.VerdictAdded], d.counts[ledger.VerdictChanged], d.counts[ledger.VerdictReopened],
		d.counts[ledger.VerdictKnown], d.counts[ledger.VerdictDiffers], j.flags.dryRun, d.listed(), j.flags.seed, orEmpty(d.notTaken), orEmpty(d.badLines)}
	switch p.Format {
	case report.JSON:
		if err := p.Object(sum); err != nil {
			return err
		}
	case report.JSONL, report.CSV: // which have no place for it
		d.complain(a)
	case report.Table:
		d.complain(a)
		if d.total() == 0 {
			if d.bad+d.missing > 0 {
				fmt.Fprintln(a.stdout, "added 0")
			}
			if err := d.nothing(a); err != nil {
				return err
			}
			break
		}
		fmt.Fprintln(a.stdout, j.sentence(d))
	}
	switch {
	case d.bad+d.missing > 0:
		return status(exitUnfinished)
	case d.total() == 0 && a.errorOnEmpty:
		return status(exitEmpty)
	}
	return nil
}

// sentence is "added 214   known 3", and what of a list that is.
func (j *job) sentence(d *adder) string {
	text := verdictLine(d.counts)
	if j.flags.dryRun && !strings.HasPrefix(text, "added") {
		text = "would have added 0   " + text
	} else if j.flags.dryRun {
		text = "would have " + text
	}
	if n := d.listed(); j.flags.dryRun || j.flags.sample > 0 {
		text += fmt.Sprintf("   of %s listed", report.Count(n))
		if differs := d.counts[ledger.VerdictDiffers]; differs > 0 { // which are known, too
			text += fmt.Sprintf(", %s known", report.Count(differs+d.counts[ledger.VerdictKnown]))
		}
	}
	if j.flags.sample > 0 {
		text += "   sample --seed " + shell.Quote(j.flags.seed)
		if have := int64(j.flags.sample - d.draw.want); have > 0 {
			text += fmt.Sprintf(", of which %s were there", report.Count(have))
		}
	}
	return text
}

// verdictLine is "added 214   known 3": what is not nothing, and "added 0" where something was known.
func verdictLine(counts map[ledger.Verdict]int64) string {
	var parts []string
	for _, v := range []ledger.Verdict{ledger.VerdictAdded, ledger.VerdictChanged, ledger.VerdictReopened, ledger.VerdictKnown, ledger.VerdictDiffers} {
		if counts[v] > 0 || v == ledger.VerdictAdded && counts[ledger.VerdictKnown] > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", v, report.Count(counts[v])))
		}
	}
	return strings.Join(parts, "   ")
}

// orEmpty is a list that JSON shows as [] when there is nothing in it.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
