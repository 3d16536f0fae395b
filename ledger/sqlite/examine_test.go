package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestExamineMakesNothing(t *testing.T) {
	dir := t.TempDir()
	all, sound := Examine(t.Context(), filepath.Join(dir, "sub", "none.db"))
	if storetest.Finds(t, all, "database", finding.LevelProblem, "no ledger in", "make one\nmigrate"); sound {
		t.Error("no ledger is sound")
	}
	storetest.Finds(t, all, "disk", finding.LevelOK, " free in "+dir)
	text := filepath.Join(dir, "text")
	must.OK(t, os.WriteFile(text, []byte(strings.Repeat("no database at all", 100)), 0o600))
	all, _ = Examine(t.Context(), text)
	storetest.Finds(t, all, "database", finding.LevelProblem, "is no SQLite file")
	path := filepath.Join(dir, "ledger.db")
	s, err := Open(t.Context(), path, Options{})
	must.OK(t, err)
	must.OK(t, s.Close())
	before, err := os.ReadFile(path)
	must.OK(t, err)
	all, sound = Examine(t.Context(), path)
	for _, f := range all {
		if !sound || f.Level != finding.LevelOK {
			t.Errorf("a new ledger: %+v", f)
		}
	}
	for _, check := range []string{"filesystem", "disk", "wal", "database", "schema", "journal", "clock"} {
		storetest.Finds(t, all, check, finding.LevelOK)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed, %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v now, %v", entries, err)
	}
}

func TestExamineFindsFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := Open(t.Context(), path, Options{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	must.OK(t, err)
	must.OK(t, s.Beat(t.Context(), ledger.Agent{Name: "a"}, time.Minute))
	must.OK(t, s.read(t.Context(), true, func(r session) error { // keeps the log from being moved into the file
		err := errors.Join(r.query("SELECT k FROM ledger_meta", func(row) error { return nil }),
			s.w.h.with(t.Context()).query("CREATE TABLE large AS SELECT zeroblob(5 << 20)", nil))
		storetest.Finds(t, []finding.Finding{examineLog(t.Context(), s.file)}, "wal", finding.LevelOK, "5.0 MiB wait in the")
		return err
	}))
	storetest.Finds(t, []finding.Finding{judgeLog(logged, 4096, path)}, "wal", finding.LevelWarning,
		"62 MiB wait in the write-ahead log", "lsof", path+"-shm")
	must.OK(t, s.Close())
	all, _ := Examine(t.Context(), path)
	storetest.Finds(t, all, "clock", finding.LevelWarning, "behind the newest time in the ledger")
	h, err := open(t.Context(), s.file.uri())
	if err == nil {
		_, err = pragma(t.Context(), h, "journal_mode = delete")
	}
	must.OK(t, err)
	must.OK(t, h.close())
	all, sound := Examine(t.Context(), path)
	if storetest.Finds(t, all, "journal", finding.LevelProblem, "not in WAL mode"); !sound {
		t.Error("Open repairs it")
	}
	for free, level := range map[uint64]finding.Level{2 << 30: finding.LevelOK, 500 << 20: finding.LevelWarning,
		50 << 20: finding.LevelProblem} {
		storetest.Finds(t, []finding.Finding{judgeDisk(free, "/x")}, "disk", level, " free in /x")
	}
}
