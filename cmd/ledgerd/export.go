package main

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
)

func (a *app) exportCommand() *cobra.Command {
	q := listing{all: true, sort: "id", limit: 1}
	cmd := &cobra.Command{
		Use: "export", Short: "Write all items that match, as CSV or JSON lines", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Writes items by id, without limit and as they are read, so that memory does not grow with the ledger.
The rows are those of ls. CSV unless -o says jsonl or json. --bom begins a CSV with a byte order mark,
by which Excel knows that it is UTF-8. What changes meanwhile is written as it is when its turn comes.

` + rowHelp + `

` + filterHelp,
		Example: `  ledgerd export > items.csv
  ledgerd export --where 'state:dead since:7d' -o jsonl
  ledgerd export --kind urlcheck --bom --columns key,state,code,output.status > links.csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := a.printer()
			if p.Format == report.Table {
				p.Format = report.CSV
			}
			if q.bom && p.Format != report.CSV {
				return usage("bad_flag", "", "--bom goes with CSV")
			}
			return a.list(cmd.Context(), p, q)
		},
	}
	q.define(cmd)
	cmd.Flags().BoolVar(&q.bom, "bom", false, "begin with a byte order mark, for Excel")
	return cmd
}
