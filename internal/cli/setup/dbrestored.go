package setup

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// incarnation is what db restored prints.
type incarnation struct {
	Ledger      string `json:"ledger"`
	NothingLost bool   `json:"nothing_lost"`
	Incarnation int    `json:"incarnation"`
	Attempts    int64  `json:"attempts_above"`
	IDs         int64  `json:"ids_above"`
	Leases      int64  `json:"leases_ended"`
	Home        string `json:"home,omitempty"`
}

func dbRestoredCommand(a *app.App) *cobra.Command {
	var nothingLost, force bool
	cmd := &cobra.Command{
		Use: "restored", Short: "Begin anew after a backup was put back or a standby was promoted", Args: app.Arguments(0, 0),
		Long: `Run it after a backup of the ledger was put back with other means than db restore (pg_restore, a copied file, a
snapshot), and after an asynchronous standby of Postgres was promoted: before anything works the ledger. The last
answers may be missing then, and their numbers would be given out again.

The ledger begins another incarnation. In one transaction all numbers are raised: attempts, ids of items and fencing
numbers are from then on greater than any that may have been given out. All leases end, and their items are worked
again, or are in doubt if their kind has on_lost = doubt. Results of claims from before are refused. Counters of
failures stay as they are. The journal has an entry. Programs that have the ledger open notice it within 5 s and begin
nothing more; start them again.

On Postgres a ledger records its database cluster, timeline and tables. If they differ, doctor reports it as a problem.
If nothing is missing (a synchronous standby, a move while no program worked), --nothing-lost only records the new
place and raises sequences that logical replication has left behind. Numbers, leases and named locks go on.

Programs at work are refused (exit 11); stop them first. --force goes on beside them: until they notice it, they may
give out numbers a second time. On a terminal the command asks; elsewhere it takes -y. On Postgres it needs the rights
of the owner of the tables.

With -o json: {"ledger","nothing_lost","incarnation","attempts_above","ids_above","leases_ended","home"}; home is where
the database is, as it is recorded now (Postgres).`,
		RunE: func(cmd *cobra.Command, _ []string) error { return dbRestored(cmd.Context(), a, nothingLost, force) },
	}
	cmd.Flags().BoolVar(&nothingLost, "nothing-lost", false, "record where the database is now; numbers and leases go on")
	cmd.Flags().BoolVar(&force, "force", false, "also while programs are at work")
	return cmd
}

func dbRestored(ctx context.Context, a *app.App, nothingLost, force bool) error {
	l, err := a.OpenDatabase(ctx, app.ToWork)
	if err != nil {
		return err
	}
	defer l.Close()
	if !force {
		if err := atWork(ctx, l); err != nil {
			return err
		}
	}
	if nothingLost {
		return moved(ctx, a, l)
	}
	if err := a.Confirm(fmt.Sprintf("end all leases in %s and raise all its numbers?", l.Address.Brief()),
		"what it does: ledgerd db restored --help"); err != nil {
		return err
	}
	s, ended, err := l.Restored(ctx, app.Actor())
	if err != nil {
		return err
	}
	home, err := l.Store.Home(ctx)
	if err != nil {
		return err
	}
	r := incarnation{Ledger: l.Address.String(), Incarnation: s.Incarnation(), Leases: ended, Home: home}
	r.Attempts, r.IDs = s.Above()
	return app.One(a, r, fmt.Sprintf("incarnation %d: attempts have numbers above %d, items and locks above %d; %s ended%s",
		r.Incarnation, r.Attempts, r.IDs, report.Plural(r.Leases, "lease"), report.Prefixed("\nrecorded: on ", r.Home)))
}

// moved is db restored --nothing-lost: it records where the database is now.
func moved(ctx context.Context, a *app.App, l *app.Database) error {
	home, err := l.Moved(ctx, app.Actor())
	if err != nil {
		return err
	}
	if home == "" {
		return failure.Usage("no_home", "ledgerd db restored", "nothing is recorded of where %s is, so there is nothing to "+
			"change", l.Address.Brief())
	}
	s, err := l.Store.Schema(ctx)
	if err != nil {
		return err
	}
	r := incarnation{Ledger: l.Address.String(), NothingLost: true, Incarnation: s.Incarnation(), Home: home}
	r.Attempts, r.IDs = s.Above()
	return app.One(a, r, "recorded: on "+home)
}

// atWork returns an error that names the programs that work a ledger; nil if there are none.
func atWork(ctx context.Context, l *app.Database) error {
	agents, err := l.Agents(ctx)
	if err != nil || len(agents) == 0 {
		return err
	}
	return failure.New(failure.ExitTaken, "busy", l.Address.Brief()+" is worked by "+namesOf(agents),
		"stop those programs, then run the same command again; one that was killed counts until its heartbeat has run out "+
			"(ledgerd agents)")
}

// maxNamed is how many agents an error names.
const maxNamed = 5

func namesOf(agents []ledger.Agent) string {
	text := ""
	for i, agent := range agents {
		switch {
		case i == maxNamed:
			return text + fmt.Sprintf(" and %d more", len(agents)-i)
		case i > 0:
			text += ", "
		}
		text += agent.Name
	}
	return text
}
