package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/schema"
)

// Room that a disk should have.
const (
	scarce = 1 << 30 // bytes
	dire   = 100 << 20
)

// logged is how many pages of the write-ahead log may wait to be moved into the file: four times the number from which
// on every commit tries to move them.
const logged = 4 * 4000

// ahead is how far the newest time in a ledger may be ahead of the clock.
const ahead = 2 * time.Second

// Examine checks a ledger in a file, the disk, and the processes that use the file. It changes nothing and makes no
// ledger. sound reports whether the ledger may be opened.
func Examine(ctx context.Context, path string) (all []finding.Finding, sound bool) {
	add := func(f finding.Finding) { all = append(all, f) }
	dir := nearest(filepath.Dir(path))
	if real, err := filepath.EvalSymlinks(path); err == nil {
		dir = filepath.Dir(real)
	}
	add(examineSystem(path, dir))
	add(examineDisk(dir))
	f, err := locate(path, true)
	if err != nil {
		add(sqlstore.Unusable("database", err))
		return all, false
	}
	st, err := inspect(ctx, f)
	if err == nil {
		err = st.fits(f)
	}
	if err != nil {
		add(sqlstore.Unusable("database", explain(path, err)))
		return all, false
	}
	add(finding.Fine("database", "the file can be read and written"))
	if st.have == 0 {
		add(sqlstore.Unusable("schema", noLedger(path)))
		return all, false
	}
	if st.have < schema.Version {
		add(finding.Problem("schema", fmt.Sprintf("schema %d, this program makes %d", st.have, schema.Version),
			"commands that only read refuse it; one that works migrates it, and keeps a copy beside it",
			"migrate it").By(act.Migrate))
		return all, false
	}
	add(finding.Fine("schema", fmt.Sprintf("schema %d, which this program knows", st.have)))
	if st.wal {
		add(finding.Fine("journal", "write-ahead log"))
	} else {
		add(finding.Problem("journal", "the file is not in WAL mode", "somebody has switched it; readers and the writer "+
			"block each other", "open the ledger: that switches it back"))
	}
	if runtime.GOOS == "linux" {
		add(examineLocks())
	}
	add(examineLog(ctx, f))
	add(examineClock(ctx, f))
	return all, true
}

// examineLocks checks the locks that SQLite uses. On Linux they belong to open file descriptions, unless the kernel or
// the file system does not support that.
func examineLocks() finding.Finding {
	if sqlite.OFDLockingEnabled() {
		return finding.Fine("locks", "they hold until SQLite itself closes the file")
	}
	return finding.Warning("locks", "this kernel, or the file system, has no locks of open file descriptions",
		"a Go program that embeds the ledger loses its locks when any of its code opens and closes the file",
		"use ext4, XFS, Btrfs or tmpfs and Linux 3.15 or later, or let no code of the program open the file")
}

func examineSystem(path, dir string) finding.Finding {
	system, err := networkFS(dir)
	switch {
	case err != nil:
		return finding.Problem("filesystem", err.Error(), "the ledger lies there", "look at the folder and its permissions")
	case system != "":
		return finding.Problem("filesystem", fmt.Sprintf("%s is on %s", path, system),
			"SQLite's locks are not reliable there, and the ledger could be damaged",
			"move it to a local disk, or copy it to Postgres").By(act.Copy)
	}
	return finding.Fine("filesystem", "local")
}

func examineDisk(dir string) finding.Finding {
	free, err := freeSpace(dir)
	if err != nil {
		return finding.Problem("disk", fmt.Sprintf("%s: %v", dir, err), "the ledger lies there",
			"look at the folder and its permissions")
	}
	return judgeDisk(free, dir)
}

func judgeDisk(free uint64, dir string) finding.Finding {
	what := humanize.IBytes(free) + " free in " + dir
	why, fix := "commits fail when the disk is full; nothing that was answered is lost", "make room, or move the ledger"
	switch {
	case free < dire:
		return finding.Problem("disk", what, why, fix)
	case free < scarce:
		return finding.Warning("disk", what, why, fix)
	}
	return finding.Fine("disk", what)
}

// examineLog checks how much waits in the write-ahead log.
func examineLog(ctx context.Context, f *file) finding.Finding {
	h, err := open(ctx, f.uri("busy_timeout(5000)", "query_only(1)"))
	if err != nil {
		return sqlstore.Unusable("wal", explain(f.name, err))
	}
	defer h.close()
	var frames, moved int64
	err = h.with(ctx).query("PRAGMA wal_checkpoint(NOOP)", func(r row) error { // it only reports
		frames, moved = r.int(1), r.int(2)
		return nil
	})
	size, sizeErr := pragma(ctx, h, "page_size")
	page, numErr := strconv.ParseInt(size, 10, 64)
	if err = errors.Join(err, sizeErr, numErr); err != nil {
		return sqlstore.Unusable("wal", explain(f.name, err))
	}
	return judgeLog(max(0, frames-moved), page, f.path)
}

func judgeLog(pages, size int64, path string) finding.Finding {
	what := humanize.IBytes(uint64(pages*size)) + " wait in the write-ahead log"
	if pages < logged {
		return finding.Fine("wal", what)
	}
	return finding.Warning("wal", what, "every reader looks through it, and it grows until no program reads an old state "+
		"any more", "if nothing reads or writes for long, the next commit moves it; a program that is frozen within a "+
		"transaction must be ended (`lsof` names those that have "+path+"-shm open)")
}

// examineClock compares the newest times in the ledger with the clock.
func examineClock(ctx context.Context, f *file) finding.Finding {
	latest, err := newestTime(ctx, f)
	if err != nil {
		return sqlstore.Unusable("clock", explain(f.name, err))
	}
	if early := time.Until(latest); early > ahead {
		return finding.Warning("clock", fmt.Sprintf("this machine's clock is %s behind the newest time in the ledger: it "+
			"was set back", early.Round(time.Second)),
			"leases last that much longer; nothing is done twice because of it", "keep the clock in step (timedatectl, chrony)")
	}
	return finding.Fine("clock", "this machine's clock is the ledger's")
}
