package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

func (a *app) dbCommand() *cobra.Command {
	return group(groupSetUp, "db", "Make, migrate, check, back up and copy the ledger",
		a.dbMigrateCommand(), a.dbStatusCommand(), a.dbVerifyCommand(), a.dbBackupCommand(), a.dbCopyCommand())
}

// schemaStatus is what db status and db migrate print.
type schemaStatus struct {
	Ledger   string `json:"ledger"`
	Schema   int    `json:"schema"` // 0: no ledger
	Known    int    `json:"known"`  // the newest that this program knows
	Migrated *int   `json:"migrated_from,omitempty"`
	DryRun   bool   `json:"dry_run,omitempty"`
}

// schemaOf looks at a ledger without changing it.
func (a *app) schemaOf(ctx context.Context, at dburl.Database) (schemaStatus, error) {
	s := schemaStatus{Ledger: at.String()}
	var err error
	if s.Schema, s.Known, err = at.Status(ctx); err != nil {
		err = a.explainOpen(at, err)
	}
	return s, err
}

func (a *app) dbStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say which schema the ledger has; exit 10 if it does not fit", Args: arguments(0, 0),
		Long: `Says which schema the ledger has, and which one this program knows. Exit 10 if there is no ledger
or a migration is outstanding. With -o json: {"ledger","schema","known"}.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.address()
			if err != nil {
				return err
			}
			a.warnOfPassword()
			s, err := a.schemaOf(cmd.Context(), at)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%s: schema %d, up to date", at.Brief(), s.Schema)
			switch {
			case s.Schema == 0:
				text = fmt.Sprintf("%s: no ledger; make one: %s", at.Brief(), a.migrateCommand())
			case s.Schema < s.Known:
				text = fmt.Sprintf("%s: schema %d, this ledgerd needs %d; run: %s", at.Brief(), s.Schema, s.Known, a.migrateCommand())
			case s.Schema > s.Known:
				text = fmt.Sprintf("%s: schema %d, newer than the %d that this ledgerd knows, and fit for it", at.Brief(), s.Schema, s.Known)
			}
			if err := one(a, s, text); err != nil {
				return err
			}
			if s.Schema < s.Known {
				return status(exitNoLedger)
			}
			return nil
		},
	}
}

// one prints one value: as JSON, as a row, or as text for people.
func one[T any](a *app, v T, text string) error {
	switch p := a.printer(); p.Format {
	case report.JSON, report.JSONL:
		return p.Object(v)
	case report.CSV:
		_, err := report.List(p, each([]T{v}))
		return err
	}
	_, err := fmt.Fprintln(a.stdout, text)
	return err
}

func (a *app) dbMigrateCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Make the ledger, or bring its schema up to date", Args: arguments(0, 0),
		Long: `Makes the ledger if there is none, or applies the migrations that are outstanding. SQLite files are
migrated by whoever opens them; a ledger on Postgres only by this command.

With -o json: {"ledger","schema","known","migrated_from"}.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			at, err := a.address()
			if err != nil {
				return err
			}
			a.warnOfPassword()
			s, err := a.schemaOf(ctx, at)
			if err != nil {
				return err
			}
			from := s.Schema
			s.Migrated, s.DryRun = &from, dryRun
			if from < s.Known && !dryRun {
				if err := at.Migrate(ctx); err != nil {
					return a.explainOpen(at, err)
				}
				s.Schema = s.Known
			}
			text := fmt.Sprintf("%s: schema %d → %d", at.Brief(), from, max(from, s.Known))
			switch {
			case from >= s.Known:
				text = fmt.Sprintf("%s: schema %d, nothing to do", at.Brief(), from)
			case from == 0:
				text = fmt.Sprintf("%s: made, with schema %d", at.Brief(), s.Known)
			}
			if dryRun && from < s.Known {
				text += "    (dry run: nothing was changed)"
			}
			return one(a, s, text)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return cmd
}

// verified is what db verify prints.
type verified struct {
	OK         bool           `json:"ok"`
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

// mostViolations is how many are listed; all are counted.
const mostViolations = 1000

func (a *app) dbVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Check the whole ledger against its rules; exit 1 if one is broken", Args: arguments(0, 0),
		Long: `Reads the whole ledger and checks what must hold: attempts add up, a round is completed once,
rows are whole. May run beside workers.

With -o json: {"ok","items","checks":[{"rule","text","violations"}],"violations":[{"rule","id","text"}],"seconds"}.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer l.Close()
			v, err := verify(cmd.Context(), l.Ledger)
			if err != nil {
				return err
			}
			if p := a.printer(); p.Format == report.JSON || p.Format == report.JSONL {
				err = p.Object(v)
			} else {
				err = a.tellVerified(p, v)
			}
			if err == nil && !v.OK {
				return status(exitError)
			}
			return err
		},
	}
}

func verify(ctx context.Context, l *ledger.Ledger) (*verified, error) {
	began := time.Now()
	v := &verified{Violations: []violationRow{}}
	counts := map[string]int64{}
	for bad, err := range l.Verify(ctx) {
		if err != nil {
			return nil, err
		}
		if counts[bad.Rule]++; len(v.Violations) < mostViolations {
			v.Violations = append(v.Violations, violationRow{bad.Rule, bad.ItemID, bad.Text})
		}
	}
	for _, rule := range ledger.VerifyRules {
		v.Checks = append(v.Checks, check{rule.Name, rule.Text, counts[rule.Name]})
	}
	v.OK = len(v.Violations) == 0
	var err error
	v.Items, err = l.Count(ctx, ledger.Filter{})
	v.Seconds = inSeconds(time.Since(began))
	return v, err
}

func (a *app) tellVerified(p *report.Printer, v *verified) error {
	_, err := report.List(p, each(v.Checks))
	if p.Format == report.CSV { // of the checks, which count all there is
		p = p.To(a.stderr)
	}
	if err == nil && len(v.Violations) > 0 {
		fmt.Fprintln(p.Out)
		_, err = report.List(p, each(v.Violations))
	}
	verdict := "ok"
	if !v.OK {
		verdict = "violated"
	}
	_, perr := fmt.Fprintf(p.Out, "%s: %s in %s\n", verdict, plural(v.Items, "item"), seconds(time.Duration(v.Seconds*float64(time.Second))))
	return errors.Join(err, perr)
}
