package setup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tables"
)

// restored is what db restore prints.
type restored struct {
	Ledger      string      `json:"ledger"`
	File        string      `json:"file"`
	Newest      report.Time `json:"newest"`
	Before      string      `json:"before"`
	Items       int64       `json:"items"`
	Leased      int64       `json:"leased"` // in the backup
	Incarnation int         `json:"incarnation"`
}

func dbRestoreCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "restore FILE", Short: "Put a backup in the place of a ledger on SQLite", Args: app.Arguments(1, 1),
		Long: `Puts a copy of FILE, a backup that db backup wrote, in the place of the ledger of --db. The backup is
checked first: a file that is damaged, is no ledger or has a schema that this program does not know is refused.
So is a ledger that any program has open (exit 5). The ledger that was there is kept as one file beside it:
ledger.db.before-restore-TIME. Remove it once all is well. A crash leaves one of the two whole. On a
terminal the command asks before it replaces a ledger; elsewhere it takes -y. A backup of an older schema is
brought up to date on the way.

Work that was done after the backup is done again. The ledger begins another incarnation, as db restored describes:
no number is given out again, and leases of the backup end. The journal has an entry.

A ledger on Postgres is restored with Postgres: the command prints how.

With -o json: {"ledger","file","newest","before","items","leased","incarnation"}; newest is the newest time in the backup,
before the path of the ledger that was there ("": there was none).`,
		RunE: func(cmd *cobra.Command, args []string) error { return dbRestore(cmd.Context(), a, args[0]) },
	}
}

func dbRestore(ctx context.Context, a *app.App, file string) error {
	at, err := a.Address()
	if err != nil {
		return err
	}
	r := restored{Ledger: at.String()}
	if r.File, err = filepath.Abs(file); err != nil {
		return err
	}
	r.Before, err = at.Restore(ctx, file, dburl.RestoreHooks{
		Replace: func() error {
			return a.Confirm(fmt.Sprintf("replace the ledger in %s by %s?", at.Brief(), file), "look at it: ledgerd stats")
		},
		Fill: func(s dburl.Store, newest time.Time) (err error) {
			r.Newest = report.Time(newest)
			var done ledger.Schema
			done, r.Leased, err = ledger.New(s, ledger.Options{Logger: a.Log}).Restored(ctx, app.Actor())
			if err != nil {
				return err
			}
			r.Incarnation = done.Incarnation()
			err = s.Update(ctx, nil, func(tx ledger.Tx) error {
				return tx.Journal(ledger.JournalEntry{Actor: app.Actor(), Action: "restore", Subject: r.File,
					Detail: "as of " + newest.Format(time.RFC3339), Changed: 1})
			})
			if err == nil {
				r.Items, err = s.Count(ctx, ledger.Filter{})
			}
			return err
		},
	})
	if err != nil {
		return notRestored(ctx, a, at, err)
	}
	return app.One(a, r, tellRestored(file, r))
}

// notRestored makes an error for people of an error of a restore. If the ledger is in use, it names the live programs.
func notRestored(ctx context.Context, a *app.App, at dburl.Database, err error) error {
	if tool, ok := errors.AsType[*dburl.ToolError](err); ok {
		return failure.Usage(tool.Code, tool.Command, "%s", tool.Message)
	}
	f := failure.Explain(err)
	if !errors.Is(err, dburl.ErrInUse) {
		return f
	}
	if l, err := a.OpenAt(ctx, at, app.ToCopy); err == nil {
		defer l.Close()
		if busy, ok := errors.AsType[*tables.BusyError](tables.Quiet(ctx, l.Ledger)); ok {
			f.Message += ": " + busy.Error()
		}
	}
	return f
}

func tellRestored(file string, r restored) string {
	text := fmt.Sprintf("restored: %s from %s", report.Plural(r.Items, "item"), file)
	if newest := time.Time(r.Newest); newest.Unix() > 0 {
		text += ", of " + newest.Local().Format(time.DateTime)
	}
	if r.Before != "" {
		text += "\nthe ledger as it was: " + dburl.ShortPath(r.Before)
	}
	if r.Leased > 0 {
		text += fmt.Sprintf("\nleased in the backup: %s, to be worked again",
			report.Plural(r.Leased, "item"))
	}
	return text + fmt.Sprintf("\nwhat was done after the backup is worked again, with greater numbers (incarnation %d)",
		r.Incarnation)
}
