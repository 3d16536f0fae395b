package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
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
// Every role may call these functions, unless whoever runs the server forbids it, or has servers without them.
const homeNow = `CASE WHEN pg_is_in_recovery() THEN '' ELSE format('timeline %s of cluster %s (database %s, tables %s)',
 ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, (SELECT system_identifier FROM pg_control_system()),
 (SELECT oid FROM pg_database WHERE datname = current_database()), '{{S}}.ledger_meta'::regclass::oid) END`

// commitsWait is whether what this session commits is on a standby when it is answered.
const commitsWait = `current_setting('synchronous_standby_names') <> ''
 AND current_setting('synchronous_commit') IN ('on', 'remote_apply')`

const (
	readHome = `SELECT ` + homeNow + `, CASE WHEN pg_is_in_recovery() THEN 0
  ELSE (pg_current_wal_lsn() - '0/0')::bigint END, ` + commitsWait + `,
 has_table_privilege('{{S}}.ledger_meta', 'INSERT') AND has_table_privilege('{{S}}.ledger_meta', 'UPDATE')`
	putHome = `INSERT INTO {{S}}.ledger_meta (k, v) SELECT u.k, u.v FROM (SELECT ` + homeNow + ` AS home) h
 CROSS JOIN LATERAL (VALUES ('` + schema.Home + `', h.home), ('` + schema.Waits + `', CASE WHEN ` + commitsWait +
		` THEN 'yes' ELSE 'no' END)) u(k, v) WHERE h.home <> '' ON CONFLICT (k) DO `
	keepHome   = putHome + `NOTHING`
	changeHome = putHome + `UPDATE SET v = excluded.v RETURNING k, v`
	waitNoMore = `UPDATE {{S}}.ledger_meta SET v = 'no' WHERE k = '` + schema.Waits + `'`
)

// home is where a ledger is.
type home struct {
	now      string // "" on a standby, and where the functions may not be called
	at       int64  // how far it is written, in bytes
	waits    bool   // what this session commits waits for a standby
	writable bool   // this role may record it
}

// lookHome reads where the ledger is.
func (s *Store) lookHome(ctx context.Context) (h home, err error) {
	if s.homeless.Load() {
		return h, nil
	}
	err = s.pool.QueryRow(ctx, s.render(readHome), pgx.QueryExecModeCacheDescribe).Scan(h.dest()...)
	if bad, ok := errors.AsType[*pgconn.PgError](err); ok && !unavailable(bad) {
		s.homeless.Store(true)
		return home{}, nil
	}
	h.writable = h.writable && !s.reads
	return h, err
}

func (h *home) dest() []any { return []any{&h.now, &h.at, &h.waits, &h.writable} }

// follows reports whether a ledger may go on where it is now: commits waited for a standby, and one was promoted. Then
// nothing is missing there that was acknowledged. A recovery to a point in time looks like that, too, but ends before
// what a process has seen: so only one that worked before follows. A role that cannot record the new home does not
// follow it, since commits may wait for no standby there.
func (c condition) follows() bool {
	_, was, _ := strings.Cut(c.recorded, " of ")
	_, is, _ := strings.Cut(c.home.now, " of ")
	return c.waits && c.home.writable && is != "" && is == was && 0 < c.seen && c.seen <= c.home.at
}

// tend records the home of a ledger where that is not known, or has followed a promotion; and that commits do not wait
// for a standby any more.
func (s *Store) tend(ctx context.Context, c *condition) error {
	now := c.home.now
	switch {
	case now == "" || !c.home.writable:
		return nil
	case c.recorded == "":
		return s.note(ctx, keepHome)
	case c.recorded == now && c.waits && !c.home.waits:
		c.waits = false
		return s.note(ctx, waitNoMore)
	case c.recorded == now || !c.follows():
		return nil
	}
	err := s.Update(ctx, nil, func(tx ledger.Tx) error {
		if _, err := tx.PutHome(); err != nil {
			return err
		}
		host, _ := os.Hostname()
		return tx.Journal(ledger.JournalEntry{Actor: fmt.Sprintf("%s/%d", host, os.Getpid()), Action: "moved",
			Subject: "ledger", Detail: "commits waited for the standby that was promoted, so nothing was lost; now on " + now})
	})
	if err == nil {
		c.recorded, c.waits = now, c.home.waits
	}
	return err
}

// note writes into ledger_meta, unless the sessions of this role are to read only.
func (s *Store) note(ctx context.Context, statement string) error {
	_, err := s.pool.Exec(ctx, s.render(statement), pgx.QueryExecModeCacheDescribe)
	if readOnly(err) {
		return nil
	}
	return err
}

// settle learns the home of a ledger that is opened.
func (s *Store) settle(ctx context.Context, c condition, o Options) (err error) {
	if c.home, err = s.lookHome(ctx); err != nil {
		return err
	}
	if !o.Moved {
		err = s.tend(ctx, &c)
	}
	s.remain(c)
	return err
}

// remain keeps for connections where the ledger is to be, and whether it may follow a promotion.
func (s *Store) remain(c condition) {
	s.waits.Store(c.waits && c.home.writable)
	if s.opened.Load() == nil || c.home.now != "" && c.home.now == c.recorded {
		s.opened.Store(&c.home.now)
		s.seen.Store(c.home.at)
	}
}

// watchHome has each new connection of a pool look where the ledger is. After a failover all connections are new, so no
// number is given on the new primary before the process knows of it.
func watchHome(config *pgxpool.Config) *atomic.Pointer[Store] {
	watching, after := &atomic.Pointer[Store]{}, config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := after(ctx, conn); err != nil {
			return err
		}
		if s := watching.Load(); s != nil && s.place() != "" {
			c := condition{recorded: s.place(), waits: s.waits.Load(), seen: s.seen.Load()}
			err := conn.QueryRow(ctx, s.render(readHome), pgx.QueryExecModeCacheDescribe).Scan(c.home.dest()...)
			if now := c.home.now; err == nil && now != "" && now != c.recorded && !c.follows() {
				s.moved.Store(&now)
			}
		}
		return nil // who asked for the connection meets what fails here
	}
	return watching
}

// place is where the ledger is to be; "" if that is not known.
func (s *Store) place() string {
	if opened := s.opened.Load(); opened != nil {
		return *opened
	}
	return ""
}

// stays is an error once the ledger is not where it was when it was opened. Everything that gives a number asks it, on
// its connection.
func (s *Store) stays() error {
	if now := s.moved.Load(); now != nil {
		return ledger.Schema{Ledger: s.name, Home: *now, Recorded: s.place()}.Fits()
	}
	return nil
}

// examineHome tells whether it is noticed that the database is elsewhere.
func (s *Store) examineHome(ctx context.Context, _ *pgxpool.Pool) ([]finding.Finding, error) {
	const why = "a standby that lacks commits and is promoted, or a backup that is restored, is not noticed: numbers are " +
		"given a second time"
	h, err := s.lookHome(ctx)
	if err != nil {
		return nil, err
	}
	now := h.now
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
	case now == c.recorded && c.waits && !h.waits:
		return []finding.Finding{finding.Warning("home", now+"; it is recorded that commits wait for a standby, and those of "+
			"this user do not", why, "record it, as the owner of the tables").By(act.Moved)}, nil
	case now == c.recorded:
		return []finding.Finding{finding.Fine("home", now)}, nil
	}
	return nil, nil // on a standby, or told with the schema
}
