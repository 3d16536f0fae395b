package work

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// addRow is what add prints with -o jsonl and csv, for each input.
type addRow struct {
	Input   string         `json:"input"`
	ID      int64          `json:"id"`
	Verdict ledger.Verdict `json:"verdict"`
	State   ledger.State   `json:"state"`
}

func AddCommand(a *app.App) *cobra.Command {
	var s input.SourceFlags
	var due string
	cmd := &cobra.Command{
		Use: "add KIND INPUT…", Short: "Add items, to be worked by whoever works the ledger", GroupID: app.GroupWork,
		Args: app.Arguments(1, -1),
		Long: `Adds inputs as run does, and works nothing. A known item stays as it is, unless its file or URL has
changed. Inputs of one command begin in no particular order, whatever the order of the list; priorities and --due put
some first.

A list may be a saved query, --from FILE. Its column key is the INPUT. The columns fingerprint, shard_key
and priority belong to the item. All others are fields of the payload, beside --set; a NULL is left out.
The query runs in a transaction that can only read, in the ledger's database unless --query-db names another
one. A row without a key, or one that breaks a rule, is a bad line, named by its number in the result. If a
key comes twice, the second row is a known item.

With --sample N only N of the inputs are added, drawn by chance from those that are not in the scope yet.
--seed names the sample: it is the same everywhere, and the same command again completes it.

Exit 3 if an input could not be taken: an unreadable folder in a named one, a name that cannot be stored, a bad line.

With -o json: {"added","changed","reopened","known","differs","dry_run","listed","seed","not_taken","bad_lines"};
with -o jsonl and csv a row for each input: input, id, verdict, state.`,
		Example: "  ledgerd add urlcheck links.txt --due 2h\n  find . -name '*.csv' | ledgerd add filecsv -\n" +
			"  ledgerd add mail --scope kitty-lovers --from lists/sydney.sql --sample 1000 --seed a --set template=a",
		RunE: func(cmd *cobra.Command, args []string) error {
			return addInputs(app.Traced(cmd.Context()), a, s, args[0], args[1:], due)
		},
	}
	s.Define(a, cmd)
	cmd.Flags().StringVar(&due, "due", "", "not before this `time`: a duration (2h) or 2026-11-20T10:00:00Z; a leased "+
		"item that changes is ready when its attempt ends")
	return cmd
}

func addInputs(ctx context.Context, a *app.App, s input.SourceFlags, name string, args []string, due string) error {
	at, err := app.ParseDue(due)
	if err != nil {
		return err
	}
	j, err := input.Prepare(ctx, a, s, name, args, nil)
	if err != nil {
		return err
	}
	defer j.Close()
	j.Source.Template.Due = at
	if !j.Flags.DryRun {
		if err := a.Introduce(ctx, j.Ledger.Any, j.Kind); err != nil {
			return err
		}
		if err := j.Remember(ctx); err != nil {
			return err
		}
	}
	p := a.Printer()
	d, err := j.Adder(ctx)
	if err != nil {
		return err
	}
	if err := eachRow(p, d, func() error { return j.Add(ctx, d) }); err != nil {
		return err
	}
	return reportAdd(a, p, j, d)
}

// eachRow runs add. With -o jsonl and csv it prints a row for each input.
func eachRow(p *report.Printer, d *intake.Adder, add func() error) error {
	if p.Format != report.JSONL && p.Format != report.CSV {
		return add()
	}
	rows, err := report.NewRows[addRow](p, nil, nil)
	if err != nil {
		return err
	}
	d.Each = func(input string, ad ledger.Added) error {
		return rows.Write(addRow{input, ad.ID, ad.Verdict, ad.State})
	}
	return errors.Join(add(), rows.Close())
}
