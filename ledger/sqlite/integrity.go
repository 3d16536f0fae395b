package sqlite

import (
	"context"
	"fmt"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// maxDamage is how many damaged places are named; one, if the check must end in time.
const maxDamage = 20

// Integrity reads every page of the file and compares every index with its table (PRAGMA integrity_check,
// sqlite.org/pragma.html). It changes nothing, and other connections may write meanwhile. If ctx ends first, the
// finding tells that not everything was read. SQLite keeps no checksums, so a changed letter within a text is not
// found.
func Integrity(ctx context.Context, path string) finding.Finding {
	places, err := damageOf(ctx, path)
	code := resultCode(err) & 0xff
	switch {
	case err == nil:
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB, code == sqlite3.SQLITE_IOERR:
		places = append(places, explain(path, err).Error())
	case len(places) > 0:
	case ctx.Err() != nil:
		return finding.Fine("integrity", "no damage in the part of the file that was read in time")
	default:
		return sqlstore.Unusable("integrity", explain(path, err))
	}
	if len(places) > 0 {
		return damaged(places)
	}
	return finding.Fine("integrity", "every page of the file can be read, and every index is that of its table")
}

// damageOf returns the damaged places that were found before the check ended, or an error ended it.
func damageOf(ctx context.Context, path string) (places []string, err error) {
	f, err := locate(path, true)
	if err != nil {
		return nil, err
	}
	h, err := open(ctx, f.uri("busy_timeout(5000)", "query_only(1)"))
	if err != nil {
		return nil, err
	}
	defer h.close() // it wrote nothing
	most := maxDamage
	if _, bounded := ctx.Deadline(); bounded {
		most = 1 // SQLite drops what it has found if it is interrupted before it has found as many
	}
	err = h.with(ctx).query(fmt.Sprintf("PRAGMA integrity_check(%d)", most), func(r row) error {
		if place := r.text(0); place != "ok" {
			places = append(places, place)
		}
		return nil
	})
	return places, err
}

func damaged(places []string) finding.Finding {
	return finding.Problem("integrity", strings.Join(places, "\n"),
		"the file is damaged: what is read there may be wrong, and more may be lost", recovery)
}

// recovery is the advice for a damaged file.
const recovery = "stop all programs that use the ledger and keep a copy of the file with its -wal; then put a backup in " +
	"its place, or get back what can be read: sqlite3 FILE .recover | sqlite3 NEW (sqlite3 of version 3.43 or later)"
