package setup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/invariant"
)

// verified is what db verify prints.
type verified struct {
	OK         bool           `json:"ok"`
	Integrity  findingRow     `json:"integrity"`
	Items      int64          `json:"items"`
	Checks     []check        `json:"checks"`
	Violations []violationRow `json:"violations"`
	Seconds    float64        `json:"seconds"`
}

type check struct {
	Rule       string `json:"rule"`
	Text       string `json:"text"`
	Violations int64  `json:"violations"`
}

type violationRow struct {
	Rule string `json:"rule"`
	ID   int64  `json:"id"`
	Text string `json:"text"`
}

// maxViolations is how many are listed; all are counted.
const maxViolations = 1000

func dbVerifyCommand(a *app.App) *cobra.Command {
	var within app.DurationFlag
	cmd := &cobra.Command{
		Use: "verify", Short: "Check the whole ledger for damage and against its rules; exit 1 if something is wrong",
		Args: app.Arguments(0, 0),
		Long: `Reads the whole ledger. First it looks for damage: on SQLite by its integrity_check, on Postgres by the extension
amcheck where the database has it. Then it checks what must hold: the numbers of attempts have no gaps but those of db
restored, a round is completed at most once, and no row has only part of a lease. The rules of a damaged ledger are
not checked. It may run while workers run; on SQLite the write-ahead log grows meanwhile.

--within ends the look for damage after that time and reports that not all was read.

With -o json: {"ok","integrity":{"level","check","what","why","fix"},"items","checks":[{"rule","text","violations"}],
"violations":[{"rule","id","text"}],"seconds"}.
In checks, violations is how many break the rule; the list violations has the first 1,000 of all.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.OpenDatabase(cmd.Context(), app.ToRead)
			if err != nil {
				return err
			}
			defer l.Close()
			v, err := verify(cmd.Context(), a, l, within.Duration)
			if err != nil {
				return err
			}
			if p := a.Printer(); p.Format == report.JSON || p.Format == report.JSONL {
				err = p.Object(v)
			} else {
				err = tellVerified(a, p, v)
			}
			if err == nil && !v.OK {
				return failure.Status(failure.ExitError)
			}
			return err
		},
	}
	cmd.Flags().Var(&within, "within", "look for damage for at most this long; 0 reads all")
	return cmd
}

// verify looks for damage and, if there is none, checks the rules.
func verify(ctx context.Context, a *app.App, l *app.Database, within time.Duration) (*verified, error) {
	began := time.Now()
	v := &verified{Checks: []check{}, Violations: []violationRow{}}
	found := integrity(ctx, l.Address, within)
	if v.Integrity = rowOf(a, found); found.Level == finding.LevelProblem {
		v.Seconds = report.InSeconds(time.Since(began))
		return v, nil
	}
	counts := map[string]int64{}
	for bad, err := range l.Verify(ctx) {
		if err != nil {
			return nil, err
		}
		if counts[bad.Rule]++; len(v.Violations) < maxViolations {
			v.Violations = append(v.Violations, violationRow{bad.Rule, bad.ItemID, bad.Text})
		}
	}
	for _, rule := range invariant.Rules {
		v.Checks = append(v.Checks, check{rule.Name, rule.Text, counts[rule.Name]})
	}
	v.OK = len(v.Violations) == 0
	var err error
	v.Items, err = l.Count(ctx, ledger.Filter{})
	v.Seconds = report.InSeconds(time.Since(began))
	return v, err
}

// integrity looks for damage, for at most within; 0 is no bound.
func integrity(ctx context.Context, at dburl.Database, within time.Duration) finding.Finding {
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	return at.Integrity(ctx)
}

func tellVerified(a *app.App, p *report.Printer, v *verified) error {
	out := p.Out
	if p.Format == report.CSV { // stdout has the rows of the checks alone
		out = a.Notices
	}
	if found := v.Integrity; found.Level == finding.LevelProblem {
		_, err := fmt.Fprintf(out, "%s\n%s\n%s\ndamaged: its rules were not checked\n", found.What, found.Why, found.Fix)
		return err
	}
	_, err := report.List(p, report.Each(v.Checks))
	p = p.To(out)
	if err == nil && len(v.Violations) > 0 {
		fmt.Fprintln(p.Out)
		_, err = report.List(p, report.Each(v.Violations))
	}
	verdict := "ok"
	if !v.OK {
		verdict = "violated"
	}
	_, perr := fmt.Fprintf(p.Out, "%s\n%s: %s in %s\n", v.Integrity.What, verdict, report.Plural(v.Items, "item"),
		report.Seconds(time.Duration(v.Seconds*float64(time.Second))))
	return errors.Join(err, perr)
}
