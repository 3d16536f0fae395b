package main

import (
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

func (a *app) exportCommand() *cobra.Command {
	var f filter
	var bom bool
	cmd := &cobra.Command{
		Use: "export", Short: "Write all items that match, as CSV or JSON lines", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Writes items by id, without limit and as they are read, so that memory does not grow with the ledger.
The rows are those of ls. CSV unless -o says jsonl or json. --bom begins a CSV with a byte order mark,
by which Excel knows that it is UTF-8. What changes meanwhile is written as it is when its turn comes.

` + filterHelp,
		Example: `  ledgerd export > items.csv
  ledgerd export --where 'state:dead since:7d' -o jsonl
  ledgerd export --kind urlcheck --bom --columns key,state,code,error > links.csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := a.printer()
			if p.Format == report.Table {
				p.Format = report.CSV
			}
			if bom && p.Format != report.CSV {
				return usage("bad_flag", "", "--bom goes with CSV")
			}
			chosen, err := f.parse()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			l, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			if chosen, err = byPath(ctx, l.Ledger, chosen); err != nil {
				return err
			}
			if bom {
				if _, err := io.WriteString(a.stdout, "\uFEFF"); err != nil {
					return err
				}
			}
			n, err := report.List(p, itemRows(l.List(ctx, chosen, 0)))
			if err == nil && n == 0 && a.errorOnEmpty {
				return status(exitEmpty)
			}
			return err
		},
	}
	f.define(cmd)
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "only these `states`")
	cmd.Flags().BoolVar(&bom, "bom", false, "begin with a byte order mark, for Excel")
	return cmd
}

func itemRows(items iter.Seq2[ledger.Item, error]) iter.Seq2[itemRow, error] {
	return func(yield func(itemRow, error) bool) {
		for it, err := range items {
			if !yield(newItemRow(it), err) {
				return
			}
		}
	}
}
