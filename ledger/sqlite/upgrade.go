package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/schema"
)

// upgrade migrates a ledger of an older schema, if the options allow it. The caller holds the lock.
func upgrade(ctx context.Context, f *file, st state, o Options) (err error) {
	if o.NoMigrate {
		return &ledger.Error{Kind: ledger.ErrSchema,
			Message: fmt.Sprintf("the ledger in %s has schema %d, this program needs %d", f.name, st.have, schema.Version),
			Hint:    "migrate it", Act: act.Act{Name: act.Migrate}}
	}
	copied := ""
	if o.Copy {
		if copied, err = copyOlder(ctx, f, st.have); err != nil {
			return notMigrated(f, "no copy of it could be written", err, "nothing was changed")
		}
	}
	if err := migrate(ctx, f, st); err != nil {
		return notMigrated(f, "a migration failed", err, hintAfter(context.WithoutCancel(ctx), f, st, copied))
	}
	if o.Migrated != nil {
		o.Migrated(st.have, schema.Version, copied)
	}
	return nil
}

// copyOlder copies the ledger to a new file beside it, and returns the path. A ledger without items is not copied: the
// path is "".
func copyOlder(ctx context.Context, f *file, have int) (path string, err error) {
	h, err := open(ctx, f.uri("busy_timeout(5000)", "query_only(1)"))
	if err != nil {
		return "", err
	}
	items, err := exists(h.with(ctx), "SELECT 1 FROM ledger_items")
	if err = errors.Join(err, h.close()); err != nil || !items {
		return "", err
	}
	path = fmt.Sprintf("%s.schema-%d.bak", f.path, have)
	for n := 2; ; n++ {
		if err = f.backup(ctx, path); !errors.Is(err, fs.ErrExist) {
			return path, explain(path, err)
		}
		path = fmt.Sprintf("%s.schema-%d.%d.bak", f.path, have, n)
	}
}

// hintAfter returns the hint after a failed migration. Each step of a migration is committed separately. If no step was
// committed, hintAfter removes the copy.
func hintAfter(ctx context.Context, f *file, before state, copied string) string {
	now, err := inspect(ctx, f)
	switch {
	case err == nil && now.have == before.have && (copied == "" || os.Remove(copied) == nil):
		return "nothing was changed"
	case copied == "":
		return "the same command goes on with it"
	}
	return "the same command goes on with it; as it was before, it is in " + copied
}

// notMigrated returns the error for a ledger that was not migrated, or only in part.
func notMigrated(f *file, why string, err error, hint string) error {
	err = explain(f.name, err)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	out := &ledger.Error{Message: fmt.Sprintf("the ledger in %s was not migrated: %s: %v", f.name, why, err), Hint: hint,
		Err: err}
	if known, ok := errors.AsType[*ledger.Error](err); ok {
		out.Kind = known.Kind
		if errors.Is(err, ledger.ErrUnavailable) {
			out.Hint += "; make room if the disk is full, then run the same command again"
		}
	}
	return out
}
