package sqlite

import (
	"context"
	"fmt"
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
	must.OK(t, s.Close())
	all, _ := Examine(t.Context(), path)
	storetest.Finds(t, all, "clock", finding.LevelWarning, "behind the newest time in the ledger", "1h0m0s")
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

// The process that keeps the write-ahead log from being moved into the file is named.
func TestExamineNamesReaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := Open(t.Context(), path, Options{})
	must.OK(t, err)
	defer s.Close()
	fill := func(n int) {
		t.Helper()
		l := ledger.New(s, ledger.Options{})
		for range n {
			must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: fmt.Sprint(time.Now().UnixNano()),
				Payload: make([]byte, 1<<20)}))
		}
	}
	fill(1)
	us := fmt.Sprintf("pid %d (", os.Getpid())
	err = s.read(t.Context(), true, func(r session) error {
		if err := r.query("SELECT count(*) FROM ledger_items", func(row) error { return nil }); err != nil {
			return err
		}
		if f := examineLog(t.Context(), s.file); f.Level != finding.LevelOK {
			t.Errorf("a log that is not long yet: %+v", f)
		}
		fill(logged*4096>>20 + 4)
		storetest.Finds(t, []finding.Finding{examineLog(t.Context(), s.file)}, "wal", finding.LevelWarning,
			"MiB wait in the write-ahead log; held there by a reader: "+us)
		return nil
	})
	must.OK(t, err)
	fill(1) // its commit moves all of it
	if f := examineLog(t.Context(), s.file); f.Level != finding.LevelOK {
		t.Errorf("after the reader has gone: %+v", f)
	}
	must.OK(t, s.w.h.with(context.Background()).query("PRAGMA integrity_check", func(r row) error {
		if r.text(0) != "ok" {
			t.Error(r.text(0))
		}
		return nil
	}))
}

func TestReads(t *testing.T) {
	for in, want := range map[string]bool{
		"pos:\t0\nflags:\t0100002\nlock:\t1: OFDLCK ADVISORY  READ -1 fe:00:1234 124 125\n": true,
		"lock:\t1: POSIX  ADVISORY  READ 4711 08:01:393 123 123\n":                          true,
		"lock:\t1: POSIX  ADVISORY  READ 4711 08:01:393 128 128\n":                          false, // has it open
		"lock:\t1: POSIX  ADVISORY  WRITE 4711 08:01:393 120 124\n":                         false,
		"lock:\t1: FLOCK  ADVISORY  READ 4711 08:01:393 0 EOF\n":                            false,
	} {
		if got := reads(in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}
