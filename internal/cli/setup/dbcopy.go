package setup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tables"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Copied is what db copy prints.
type Copied struct {
	From    string        `json:"from"`
	To      string        `json:"to"`
	Tables  []copiedTable `json:"tables"`
	Rows    int64         `json:"rows"`
	Seconds float64       `json:"seconds"`
}

type copiedTable struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
}

func dbCopyCommand(a *app.App) *cobra.Command {
	var from, to string
	var wait app.DurationFlag
	cmd := &cobra.Command{
		Use: "copy --from URL --to URL", Short: "Copy a ledger to another database, SQLite or Postgres", Args: app.Arguments(
			0, 0),
		Long: `Copies all of a ledger into an empty one, between SQLite and Postgres in every direction: items with
their ids, history, policies, the journal. The target is made if there is none.

The source must be quiet: no program works it (ledgerd work, run), nothing is leased, no lock is held.
Otherwise the command names the programs that use it and ends with 11. With --wait it pauses all kinds of the source, so
that nothing more is claimed, and looks again for that long. If the copy does not come about, the kinds it
had paused are resumed; if it does, they stay paused in the source and are resumed in the target. Without
--wait the source is not changed. The copy is one transaction of the target: after an interruption the target is
empty, and the same command begins again. A target that holds anything is refused (exit 2).

The copy is a ledger of its own with a new id. Work one of the two: both know the same open items.

With -o json: {"from","to","tables":[{"table","rows"}],"rows","seconds"}.`,
		Example: `  ledgerd db copy --from sqlite:ledger.db --to postgres://app@db1/work
  LEDGERD_TO_FILE=/run/secrets/ledger-url ledgerd db copy --from sqlite:ledger.db`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			warnOfTyped(a, cmd, "from", from)
			warnOfTyped(a, cmd, "to", to)
			return dbCopy(cmd.Context(), a, from, to, wait.Duration)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`URL` of the ledger to copy (default: the one of --db)")
	cmd.Flags().StringVar(&to, "to", "", "`URL` of the empty ledger, or of where to make it")
	cmd.Flags().Var(&wait, "wait", "pause all kinds of the source, and wait so long for it to be quiet")
	app.FromEnv(cmd.Flags(), "from")
	app.FromEnv(cmd.Flags(), "to")
	return cmd
}

// warnOfTyped warns that other users can see a password in --from or --to.
func warnOfTyped(a *app.App, cmd *cobra.Command, name, value string) {
	if cmd.Flags().Changed(name) && redact.Text(value) != value {
		fmt.Fprintf(a.Stderr, "warning: the password in --%s is visible to everybody on this machine (ps); better: "+
			"PGPASSFILE, or LEDGERD_%s_FILE that names a file with the URL\n", name, strings.ToUpper(name))
	}
}

func dbCopy(ctx context.Context, a *app.App, from, to string, wait time.Duration) error {
	if to == "" {
		return failure.Usage("usage", "ledgerd db copy --from sqlite:ledger.db --to postgres://app@db1/work",
			"db copy: --to is missing")
	}
	source, err := a.Address()
	if from != "" {
		source, err = app.ParseAddress(from, "--from")
	}
	if err != nil {
		return err
	}
	target, err := app.ParseAddress(to, "--to")
	if err != nil {
		return err
	}
	if source == target {
		return failure.Usage("conflict", "name another target", "%s: is both --from and --to", source)
	}
	began := time.Now()
	l, err := a.OpenAt(ctx, source, app.ToCopy)
	if err != nil {
		return err
	}
	defer l.Close()
	var paused []string
	if wait > 0 {
		paused, err = pauseAll(ctx, a, l)
	}
	var all []tables.Copied
	if err == nil {
		if err = mustBeQuiet(ctx, l, wait); err == nil {
			all, err = copyTables(ctx, a, l, target, paused)
		}
	}
	if err != nil {
		if still := resumeAll(ctx, l.Ledger, paused); still != nil {
			fmt.Fprintf(a.Stderr, "warning: %v\n", still)
		}
		return err
	}
	// The work of a program that has started since the copy began is not in the copy.
	if err := mustBeQuiet(ctx, l, 0); err != nil {
		fmt.Fprintf(a.Stderr, "warning: the copy may lack what was changed since: %v\n", err)
	}
	res := Copied{From: source.String(), To: target.String(), Seconds: report.InSeconds(time.Since(began))}
	for _, c := range all {
		res.Tables = append(res.Tables, copiedTable(c))
		res.Rows += c.Rows
	}
	p := a.Printer()
	if p.Format == report.JSON || p.Format == report.JSONL {
		return p.Object(res)
	}
	if _, err := report.List(p, report.Each(res.Tables), "table", "rows"); err != nil || p.Format == report.CSV {
		return err
	}
	after := "was not changed"
	if len(paused) > 0 {
		after = "stays paused"
	}
	_, err = fmt.Fprintf(a.Stdout, "ok: %s in %s; %s %s: work only one of the two\n",
		report.Plural(res.Rows, "row"), report.Seconds(time.Since(began)), source.Brief(), after)
	return err
}

// copyTables copies a ledger that is quiet, and resumes in the target the kinds that were paused for the copy.
func copyTables(ctx context.Context, a *app.App, l *app.Database, target dburl.Database,
	paused []string) ([]tables.Copied, error) {
	into, err := openTarget(ctx, a, target)
	if err != nil {
		return nil, err
	}
	defer into.Close()
	all, err := tables.Copy(ctx, l.Store, into, tables.Options{Progress: copyProgress(a)})
	if err != nil {
		return nil, err
	}
	copied := ledger.New(into, ledger.Options{Logger: a.Log, Environment: l.Store.Opened().Environment})
	return all, resumeAll(ctx, copied, paused)
}

// pauseAll pauses the kinds that are not paused. It returns the kinds that it has paused, also with an error.
func pauseAll(ctx context.Context, a *app.App, l *app.Database) (paused []string, err error) {
	all, err := l.Kinds(ctx)
	for _, k := range all {
		if k.Paused || err != nil {
			continue
		}
		if _, err = l.EditKind(ctx, app.Actor(), k.Name, func(k *ledger.Kind, _ bool) { k.Paused = true }); err == nil {
			paused = append(paused, k.Name)
		}
	}
	if len(paused) > 0 && !a.Quiet {
		a.Advise(a.Stderr, "paused for the copy: %s; should this be killed: ledgerd kind resume %s\n",
			strings.Join(paused, ", "), strings.Join(paused, " "))
	}
	return paused, err
}

// resumeTime bounds resumeAll.
const resumeTime = 10 * time.Second

// resumeAll resumes kinds, even after ctx has ended.
func resumeAll(ctx context.Context, l *ledger.Ledger, paused []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTime)
	defer cancel()
	for i, kind := range paused {
		if _, err := l.EditKind(ctx, app.Actor(), kind, func(k *ledger.Kind, _ bool) { k.Paused = false }); err != nil {
			return fmt.Errorf("these kinds are still paused, resume them (ledgerd kind resume): %s: %w",
				strings.Join(paused[i:], ", "), err)
		}
	}
	return nil
}

// mustBeQuiet waits until no program works a ledger. After wait it returns an error that names these programs.
func mustBeQuiet(ctx context.Context, l *app.Database, wait time.Duration) error {
	err := tables.WaitQuiet(ctx, l.Ledger, wait)
	if _, busy := errors.AsType[*tables.BusyError](err); busy {
		return failure.New(failure.ExitTaken, "busy", fmt.Sprintf("%s is not quiet: %v", l.Address.Brief(), err),
			"stop those programs, have people finish or give back what they hold (ledgerd ls --state leased), then run it "+
				"again; --wait 10m pauses all kinds and waits for it")
	}
	return err
}

// openTarget opens or makes the ledger that gets the copy.
func openTarget(ctx context.Context, a *app.App, at dburl.Database) (dburl.Store, error) {
	s, err := at.Open(ctx, dburl.Options{Make: true})
	if err != nil {
		return nil, a.ExplainOpen(at, err)
	}
	return s, nil
}

// copyProgress returns a function that prints the progress of a copy every copyTellEvery; nil with --quiet.
func copyProgress(a *app.App) func(table string, rows int64) {
	if a.Quiet || a.Progress.String() == "off" {
		return nil
	}
	last := time.Now()
	return func(table string, rows int64) {
		if time.Since(last) > copyTellEvery {
			last = time.Now()
			fmt.Fprintf(a.Stderr, "%s: %s\n", table, report.Plural(rows, "row"))
		}
	}
}

// copyTellEvery is the time between two lines about a copy.
const copyTellEvery = 5 * time.Second
