package postgres

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/schema"
)

// The home of a ledger is the history of writes that its database belongs to, and the tables that hold it there. A
// standby that is promoted begins another timeline, and so does a recovery to a point in time; a dump that is restored
// has other tables; another cluster has another identifier. So a ledger notices that commits may be missing. A copy of
// the data folder that is started without recovery is not noticed.
//
// Every role may call these functions, unless whoever runs the server forbids it.
const homeNow = `CASE WHEN pg_is_in_recovery() THEN '' ELSE format('timeline %s of cluster %s (database %s, tables %s)',
 ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, (SELECT system_identifier FROM pg_control_system()),
 (SELECT oid FROM pg_database WHERE datname = current_database()), '{{S}}.ledger_meta'::regclass::oid) END`

const (
	readHome = `SELECT ` + homeNow + `, has_table_privilege('{{S}}.ledger_meta', 'INSERT')`
	putHome  = `INSERT INTO {{S}}.ledger_meta (k, v) SELECT '` + schema.Home + `', home FROM (SELECT ` + homeNow +
		` AS home) h WHERE home <> '' ON CONFLICT (k) DO `
	keepHome   = putHome + `NOTHING`
	changeHome = putHome + `UPDATE SET v = excluded.v RETURNING v`
)

// home is where the ledger is now; "" on a standby, and where the functions may not be called. writable: this role may
// record it.
func (s *Store) home(ctx context.Context) (now string, writable bool, err error) {
	if s.homeless.Load() {
		return "", false, nil
	}
	err = s.pool.QueryRow(ctx, s.render(readHome), pgx.QueryExecModeCacheDescribe).Scan(&now, &writable)
	if bad, ok := errors.AsType[*pgconn.PgError](err); ok && (bad.Code == "42501" || bad.Code == "42883") {
		s.homeless.Store(true)
		return "", false, nil
	}
	return now, writable, err
}

// settle learns the home of a ledger. It records one that has none recorded, if this role may: a dump of it that is
// restored is then noticed.
func (s *Store) settle(ctx context.Context, c condition, o Options) error {
	now, writable, err := s.home(ctx)
	if err != nil {
		return err
	}
	if s.opened = now; now == "" || !writable || c.recorded != "" || o.ReadOnly || o.Moved {
		return nil
	}
	_, err = s.pool.Exec(ctx, s.render(keepHome), pgx.QueryExecModeCacheDescribe)
	if readOnly(err) { // the sessions of this role are
		return nil
	}
	return err
}

// watchHome has each new connection of a pool look where the ledger is. After a failover all connections are new, so no
// number is given on the new primary before the process knows of it.
func watchHome(config *pgxpool.Config) *atomic.Pointer[Store] {
	watching, after := &atomic.Pointer[Store]{}, config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := after(ctx, conn); err != nil {
			return err
		}
		if s := watching.Load(); s != nil && s.opened != "" {
			now := ""
			err := conn.QueryRow(ctx, s.render(`SELECT `+homeNow), pgx.QueryExecModeCacheDescribe).Scan(&now)
			if err == nil && now != "" && now != s.opened {
				s.moved.Store(&now)
			}
		}
		return nil // who asked for the connection meets what fails here
	}
	return watching
}

// stays is an error once the ledger is not where it was when it was opened. Everything that gives a number asks it, on
// its connection.
func (s *Store) stays() error {
	if now := s.moved.Load(); now != nil {
		return ledger.Schema{Ledger: s.name, Home: *now, Recorded: s.opened}.Fits()
	}
	return nil
}

// examineHome tells whether it is noticed that the database is elsewhere.
func (s *Store) examineHome(ctx context.Context, _ *pgxpool.Pool) ([]finding.Finding, error) {
	const why = "a standby that lacks commits and is promoted, or a backup that is restored, is not noticed: numbers are " +
		"given a second time"
	now, _, err := s.home(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.condition(ctx, strings.TrimPrefix(s.channel, channelPrefix))
	switch {
	case err != nil || c.have == 0:
		return nil, err
	case now == "" && s.homeless.Load():
		return []finding.Finding{finding.Warning("home", "this user may not ask where the database is", why,
			"GRANT EXECUTE ON FUNCTION pg_control_system() TO … (for this user)")}, nil
	case c.recorded == "":
		return []finding.Finding{finding.Warning("home", "the ledger is on "+now+", and that is not recorded", why,
			"record it, as the owner of the tables").By(act.Moved)}, nil
	case now == c.recorded:
		return []finding.Finding{finding.Fine("home", now)}, nil
	}
	return nil, nil // on a standby, or told with the schema
}
