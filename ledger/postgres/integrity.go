package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// recovery is what to do with a damaged ledger.
const recovery = "stop all programs that use the ledger and keep a copy of the server's data; then restore a backup. " +
	"Damage of an index alone is mended by REINDEX"

// maxDamage is how many damaged places are named.
const maxDamage = 20

// Integrity looks for damaged pages and indexes in the tables of a ledger, with the extension amcheck
// (postgresql.org/docs/current/amcheck.html) where the database has it. It changes nothing, and others may write
// meanwhile. If ctx ends first, the finding tells that not all was read.
func Integrity(ctx context.Context, url string, o Options) finding.Finding {
	pool, err := connectPool(ctx, url)
	if err != nil {
		return sqlstore.Unusable("integrity", err)
	}
	defer pool.Close()
	s, o, err := newStore(pool, o)
	if err != nil {
		return sqlstore.Unusable("integrity", err)
	}
	defer s.end()
	found, err := integrity(ctx, pool, o.Schema)
	if err != nil && ctx.Err() != nil {
		return finding.Fine("integrity", "no damage in the tables and indexes that were read in time")
	}
	if err != nil {
		return sqlstore.Unusable("integrity", explain(ctx, s.name, err))
	}
	return found
}

func integrity(ctx context.Context, pool *pgxpool.Pool, schema string) (finding.Finding, error) {
	var checksums, extension string
	err := pool.QueryRow(ctx, `SELECT current_setting('data_checksums'), coalesce((SELECT n.nspname FROM pg_extension e
 JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'amcheck'), '')`).Scan(&checksums, &extension)
	if err != nil {
		return finding.Finding{}, err
	}
	sums := "pages have checksums, which Postgres compares whenever it reads one"
	if checksums != "on" {
		sums = "pages have no checksums"
	}
	if extension == "" {
		f := finding.Fine("integrity", "not looked at: the database has no extension amcheck; "+sums)
		if checksums != "on" {
			f = finding.Warning("integrity", f.What, "damage of the disk may stay unseen",
				"CREATE EXTENSION amcheck; checksums are switched on by pg_checksums, while the server is stopped")
		}
		return f, nil
	}
	extension = pgx.Identifier{extension}.Sanitize()
	var tables bool // verify_heapam, from Postgres 14 on
	err = pool.QueryRow(ctx, `SELECT to_regproc($1) IS NOT NULL`, extension+".verify_heapam").Scan(&tables)
	if err != nil {
		return finding.Finding{}, err
	}
	places, err := amcheck(ctx, pool, schema, extension, tables)
	if len(places) > 0 { // even if not all was read
		return finding.Problem("integrity", strings.Join(places, "\n"),
			"tables or indexes are damaged: what is read there may be wrong, and more may be lost", recovery), nil
	}
	if denied, ok := errors.AsType[*pgconn.PgError](err); ok && denied.Code == "42501" {
		return finding.Warning("integrity", "not looked at: "+denied.Message, "damage may stay unseen",
			"look as the owner of the database, or grant EXECUTE on the functions of amcheck"), nil
	}
	if err != nil {
		return finding.Finding{}, err
	}
	if !tables {
		return finding.Fine("integrity", "amcheck finds every index in order; it reads tables from Postgres 14 on; "+sums), nil
	}
	return finding.Fine("integrity", "amcheck finds every table and index in order; "+sums), nil
}

// amcheck returns the damaged places, and after an error those found before it. It compares each index with its table.
func amcheck(ctx context.Context, pool *pgxpool.Pool, schema, extension string, tables bool) (
	places []string, err error,
) {
	rows, err := pool.Query(ctx, `SELECT c.oid::regclass::text, c.relkind = 'r' FROM pg_class c
 JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am a ON a.oid = c.relam
 WHERE n.nspname = $1 AND starts_with(c.relname::text, 'ledger_') AND (c.relkind = 'r' AND $2 OR c.relkind = 'i' AND a.amname = 'btree')
 ORDER BY c.relkind DESC, c.relname`, schema, tables)
	if err != nil {
		return nil, err
	}
	type relation struct {
		Name  string
		Table bool
	}
	relations, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
	if err != nil {
		return nil, err
	}
	for _, r := range relations {
		var found []string
		if r.Table {
			found, err = brokenRows(ctx, pool, extension, r.Name)
		} else {
			_, err = pool.Exec(ctx, `SELECT `+extension+`.bt_index_check($1::text::regclass, true)`, r.Name)
		}
		if bad, ok := errors.AsType[*pgconn.PgError](err); ok && (bad.Code == "XX001" || bad.Code == "XX002") {
			found, err = append(found, r.Name+": "+bad.Message), nil
		}
		places = append(places, found...)
		if err != nil {
			break
		}
	}
	return places[:min(len(places), maxDamage)], err
}

// brokenRows describes damaged rows of a table, at most maxDamage.
func brokenRows(ctx context.Context, pool *pgxpool.Pool, extension, table string) ([]string, error) {
	rows, err := pool.Query(ctx, `SELECT format('%s, page %s, row %s: %s', $1::text, blkno, offnum, msg)
 FROM `+extension+`.verify_heapam($1::text::regclass) LIMIT $2`, table, maxDamage)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
