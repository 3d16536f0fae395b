package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// worked returns the closed file of a ledger with open and finished items, and the size of its pages.
func worked(t *testing.T) (path string, page int) {
	t.Helper()
	l, path := newLedger(t)
	must.Do(t)(l.Add(t.Context(), numbered(400)...))
	leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 200})
	must.OK(t, err)
	var ends []ledger.Ending
	for _, lease := range leases {
		ends = append(ends, ledger.Ending{Lease: lease, Result: ledger.Done([]byte(`{"length":12}`))})
	}
	must.OK(t, errors.Join(l.Finish(t.Context(), ends...)...))
	if err := l.Close(); err != nil { // moves the log into the file
		t.Fatal(err)
	}
	db, err := openDatabase(path)
	must.OK(t, err)
	defer db.Close()
	must.OK(t, db.QueryRow("PRAGMA page_size").Scan(&page))
	return path, page
}

// rows returns all rows of all tables, for comparison.
func rows(t *testing.T, path string) (all []string) {
	t.Helper()
	db, err := openDatabase(path)
	must.OK(t, err)
	defer db.Close()
	list := func(query string) (out []string) {
		found, err := db.QueryContext(t.Context(), query)
		must.OK(t, err)
		defer found.Close()
		for found.Next() {
			var row string
			must.OK(t, found.Scan(&row))
			out = append(out, row)
		}
		return out
	}
	for _, table := range list("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1") {
		columns := strings.Join(list("SELECT 'quote('||name||')' FROM pragma_table_info('"+table+"')"), "||','||")
		all = append(all, list("SELECT "+columns+" FROM "+table)...)
	}
	return all
}

// Each page of the file in turn is lost or replaced by another page. Integrity finds each of these faults, unless no
// row differs from before: a free page, or a page of one of two empty tables.
func TestIntegrity(t *testing.T) {
	path, size := worked(t)
	whole, err := os.ReadFile(path)
	must.OK(t, err)
	if f := sqlite.Integrity(t.Context(), path); f.Level != finding.LevelOK {
		t.Fatalf("a whole file: %+v", f)
	}
	pages := len(whole) / size
	if pages < 30 {
		t.Fatalf("%d pages are too few for a test", pages)
	}
	want, found := rows(t, path), 0
	page := func(file []byte, n int) []byte { return file[n*size : (n+1)*size] }
	for name, damage := range map[string]func(file []byte, n int){
		"zeroed": func(file []byte, n int) { clear(page(file, n)) },
		"swapped": func(file []byte, n int) {
			other := page(whole, (n+1)%pages)
			copy(page(file, (n+1)%pages), page(whole, n))
			copy(page(file, n), other)
		},
		"of before": func(file []byte, n int) { copy(page(file, n), page(whole, max(n-1, 0)/2)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			for n := range pages {
				file := bytes.Clone(whole)
				if damage(file, n); bytes.Equal(file, whole) {
					continue
				}
				must.OK(t, os.WriteFile(path, file, 0o600))
				f := sqlite.Integrity(t.Context(), path)
				if f.Level == finding.LevelProblem && f.Fix != "" {
					found++
				} else if d := cmp.Diff(want, rows(t, path)); d != "" {
					t.Errorf("page %d: %+v, though rows differ: %s", n+1, f, d)
				}
			}
		})
	}
	if found < 2*pages {
		t.Errorf("of %d pages only %d damages were found", pages, found)
	}
}

// A check that is ended early reports neither damage nor a sound file.
func TestIntegrityEndsEarly(t *testing.T) {
	path, _ := worked(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f := sqlite.Integrity(ctx, path); f.Level != finding.LevelOK || !strings.Contains(f.What, "in the part") {
		t.Errorf("%+v", f)
	}
}

// A file that cannot be read for another reason is not called damaged.
func TestIntegrityOfNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	if f := sqlite.Integrity(t.Context(), path); f.Level != finding.LevelProblem || !strings.Contains(f.What, path) ||
		strings.Contains(f.Why+f.Fix, "damage") {
		t.Errorf("%+v", f)
	}
}

// The error of a backup of a damaged ledger is about the ledger, and nothing is left of the backup. A check that must
// end in time ends at the first damaged place.
func TestBackupOfADamagedLedger(t *testing.T) {
	path, size := worked(t)
	file, err := os.ReadFile(path)
	must.OK(t, err)
	for n := len(file)/size - 8; n < len(file)/size; n++ {
		copy(file[n*size:], bytes.Repeat([]byte{0x5a}, size))
	}
	must.OK(t, os.WriteFile(path, file, 0o600))
	inTime, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	first, all := sqlite.Integrity(inTime, path), sqlite.Integrity(t.Context(), path)
	if first.Level != finding.LevelProblem || len(first.What) >= len(all.What) {
		t.Errorf("in time: %+v, all: %+v", first, all)
	}
	to := filepath.Join(t.TempDir(), "kept.db")
	err = sqlite.Backup(t.Context(), path, to)
	if !errors.Is(err, ledger.ErrDamaged) || !strings.Contains(err.Error(), path+" is damaged") {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(filepath.Dir(to)); len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// A call that reads a damaged page has a special error, and the worker does not wait for it to go away.
func TestDamageOfAnOpenLedger(t *testing.T) {
	path, size := worked(t)
	db, err := openDatabase(path)
	must.OK(t, err)
	defer db.Close()
	var root int64
	must.OK(t, db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = 'ledger_backlog'").Scan(&root))
	must.OK(t, db.Close())
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must.OK(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0x5a}, size), (root-1)*int64(size))
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	l := ledger.New(mustOpen(t, path, sqlite.Options{}), ledger.Options{})
	_, err = l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	if !errors.Is(err, ledger.ErrDamaged) || !strings.Contains(fmt.Sprint(err), path) || ledger.Hint(err) == "" {
		t.Errorf("%v; %s", err, ledger.Hint(err))
	}
}
