//go:build unix

package chaostest

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // to take the write lock from all others

	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// diskSize is the size of the file system that DiskFull fills. The write-ahead log alone may take 16 MiB of it, and
// releases that space after the disk was full.
const diskSize = 64 << 20

// place chooses the place of the ledger.
func (r *run) place(ctx context.Context) error {
	if r.plan.Database == Postgres {
		return r.placeOnServer(ctx)
	}
	dir := r.path("ledger")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if r.plan.Fault == DiskFull {
		if err := mount(dir, diskSize); err != nil {
			return err
		}
		r.closers = append(r.closers, func() error { return unmount(dir) })
	}
	r.file = filepath.Join(dir, "ledger.db")
	r.address = "sqlite:" + r.file
	return nil
}

// alone reports whether a fault hits the whole server.
func (f Fault) alone() bool { return f == Crash || f == ReadOnly || f == Failover }

// placeOnServer makes a schema for the run, on a server of its own if a fault hits the whole server.
func (r *run) placeOnServer(ctx context.Context) (err error) {
	r.server = r.campaign.server
	if r.plan.Fault == Failover {
		if r.pair, err = newPair(ctx); err != nil {
			return err
		}
		r.closers = append(r.closers, r.pair.close)
		r.server = r.pair.primary
	} else if r.plan.Fault.alone() {
		if r.server, err = cluster.Start(cluster.Options{Fsync: true}); err != nil {
			return err
		}
		r.closers = append(r.closers, r.server.Close)
	}
	u, err := url.Parse(r.server.URL())
	if err != nil {
		return err
	}
	query := u.Query()
	if r.pair != nil {
		u.Host += "," + tcp(r.pair.standby.Port)
		query.Set("target_session_attrs", "read-write")
	}
	u.RawQuery = query.Encode()
	if r.admin, err = pgxpool.New(ctx, u.String()); err != nil {
		return err
	}
	schema := strings.ReplaceAll(r.name, "-", "_")
	if _, err := r.admin.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return err
	}
	r.closers = append(r.closers, func() error {
		defer r.admin.Close()
		if r.pair != nil {
			return nil // its servers are deleted, and may wait for a standby
		}
		ctx, end := context.WithTimeout(context.Background(), time.Minute)
		defer end()
		_, err := r.admin.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
		return err
	})
	query.Set("search_path", schema)
	query.Set("application_name", r.name)
	u.RawQuery = query.Encode()
	if r.plan.Fault == Cut {
		if r.proxy, err = newProxy(tcp(r.server.Port)); err != nil {
			return err
		}
		r.closers = append(r.closers, r.proxy.close)
		u.Host = r.proxy.listener.Addr().String()
	}
	r.address = u.String()
	return nil
}

// connect opens the ledger for the clients of the harness.
func (r *run) connect(ctx context.Context) (ledger.Store, error) {
	if r.plan.Database == Postgres {
		return postgres.Connect(ctx, r.address, postgres.Options{Schema: strings.ReplaceAll(r.name, "-", "_")})
	}
	return sqlite.Open(ctx, r.file, sqlite.Options{Now: func() time.Time {
		return time.Now().Add(time.Duration(r.offset.Load()))
	}})
}

// hog takes the write lock of the ledger's file for a while.
func (r *run) hog(ctx context.Context) error {
	if r.hogs == nil {
		db, err := sql.Open("sqlite", "file:"+r.file+"?_pragma=busy_timeout(5000)&_txlock=immediate")
		if err != nil {
			return err
		}
		db.SetMaxOpenConns(1)
		r.hogs = db
		r.closers = append(r.closers, db.Close)
	}
	tx, err := r.hogs.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil && strings.Contains(err.Error(), "locked") {
		return nil // no fault this time: others held the lock during the whole wait
	}
	if err != nil {
		return err
	}
	r.count(Hog)
	sleep(ctx, time.Second)
	if err := tx.Rollback(); err != nil {
		return err
	}
	// A checkpoint that needs exclusive access.
	_, err = r.hogs.ExecContext(context.WithoutCancel(ctx), "PRAGMA wal_checkpoint(TRUNCATE)")
	if err != nil && strings.Contains(err.Error(), "locked") {
		err = nil
	}
	return err
}
