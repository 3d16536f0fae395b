package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/schema"
)

// The home of a ledger is the history of writes that its database belongs to, and the tables that hold it there. A
// standby that is promoted begins another timeline, and so does a recovery to a point in time; a dump that is restored
// has other tables; another cluster has another identifier. So it can be seen that commits may be missing. A copy of
// the data folder that is started without recovery cannot be told.
//
// Every role may call these functions, unless whoever runs the server forbids it, or has servers without them.
const homeNow = `SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE format('timeline %s of cluster %s (database %s, tables %s)',
 ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, (SELECT system_identifier FROM pg_control_system()),
 (SELECT oid FROM pg_database WHERE datname = current_database()), '{{S}}.ledger_meta'::regclass::oid) END`

const (
	recordedHome = `SELECT coalesce((SELECT v FROM {{S}}.ledger_meta WHERE k = '` + schema.Home + `'), '')`
	putHome      = `INSERT INTO {{S}}.ledger_meta (k, v) VALUES ('` + schema.Home + `', $1) ON CONFLICT (k) DO `
	keepHome     = putHome + `NOTHING`
	changeHome   = putHome + `UPDATE SET v = excluded.v`
)

// Home implements ledger.Store. It is "" on a standby, and where the functions may not be called.
func (s *Store) Home(ctx context.Context) (home string, err error) {
	err = s.pool.QueryRow(ctx, s.render(homeNow), pgx.QueryExecModeCacheDescribe).Scan(&home)
	switch sqlState(err) {
	case "42501", "42883", "0A000": // insufficient_privilege, undefined_function, feature_not_supported
		return "", nil
	}
	return home, explain(ctx, s.name, err)
}

// keepHome records the home of a ledger that was made or migrated, unless it is recorded already.
func (s *Store) keepHome(ctx context.Context) error {
	home, err := s.Home(ctx)
	if err != nil || home == "" {
		return err
	}
	_, err = s.pool.Exec(ctx, s.render(keepHome), pgx.QueryExecModeCacheDescribe, home)
	return err
}

// PutHome implements ledger.Tx. A database that was copied may have the rows of the former home but not its sequences.
func (t *tx) PutHome(home string) error {
	if err := t.raise(); err != nil {
		return err
	}
	return t.later(changeHome, []any{home}, nil)
}

// examineHome reports whether the database is where it is recorded to be.
func (s *Store) examineHome(ctx context.Context, pool *pgxpool.Pool) ([]finding.Finding, error) {
	const why = "a standby that lacks commits and is promoted, or a backup that is restored, is not seen: its numbers are " +
		"given out a second time"
	var was string
	err := pool.QueryRow(ctx, s.render(recordedHome), pgx.QueryExecModeCacheDescribe).Scan(&was)
	now := ""
	if err = explain(ctx, s.name, err); err == nil {
		now, err = s.Home(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case now == "":
		return []finding.Finding{finding.Warning("home", "it cannot be learnt where the database is: this is a standby, or "+
			"this user may not ask", why,
			"on a primary: GRANT EXECUTE ON FUNCTION pg_control_system() TO … (for this user)")}, nil
	case was == "":
		return []finding.Finding{finding.Warning("home", "the ledger is on "+now+", and that is not recorded", why,
			"record it, as the owner of the tables").By(act.Moved)}, nil
	case was != now:
		return []finding.Finding{finding.Problem("home", "the ledger is on "+now+", and was on "+was,
			"a standby was promoted, or the database was restored or moved: what was acknowledged last may be missing, and its "+
				"numbers are given out a second time",
			"if nothing can be missing (a synchronous standby), record that; else stop every program that uses it, and then begin "+
				"another incarnation").By(act.Restored)}, nil
	}
	return []finding.Finding{finding.Fine("home", now)}, nil
}
