package nightlyfiles

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/exampletest"
	"github.com/ledgerd/ledgerd/ledger"
)

// tally is what several workers did to a table of files.
type tally struct {
	doubled int   // files that were worked again, each time counted
	lost    int   // files that nobody worked
	less    int   // claims that got less than was seen, though there was more
	early   int   // times that a worker got nothing while there were files that nobody had
	dead    int   // deadlocks
	shares  []int // files by worker
}

// night has workers of a way work files that are new.
func night(t *testing.T, address string, n, nodes, batch, files int) tally {
	t.Helper()
	prepare(t, address, n, files)
	crew := make([]*exampletest.Program, nodes)
	for i := range crew {
		crew[i] = exampletest.Start(t, exec.Command(os.Args[0], "worker", strconv.Itoa(n), address, strconv.Itoa(batch)))
	}
	for _, step := range ways[n].steps {
		for _, p := range crew {
			if line, _ := p.Next(t); line != "at "+step {
				t.Fatalf("%s: %q in place of step %s\n%s", ways[n].name, line, step, p.Stderr.String())
			}
		}
		for _, p := range crew {
			if _, err := fmt.Fprintln(p.In); err != nil {
				t.Fatal(err)
			}
		}
	}
	worked := map[string]int{}
	sum := tally{shares: make([]int, nodes)}
	for i, p := range crew {
		for _, line := range strings.Split(strings.TrimSpace(p.End(t, 0)), "\n") {
			switch what, id, _ := strings.Cut(line, " "); what {
			case "file":
				worked[id]++
				sum.shares[i]++
			case "less":
				sum.less++
			case "left":
				sum.early++
			case "deadlock":
				sum.dead++
			}
		}
	}
	for _, times := range worked {
		sum.doubled += times - 1
	}
	sum.lost = files - len(worked)
	return sum
}

// prepare makes the table of files anew, or the items that stand for the same files.
func prepare(t *testing.T, address string, n, files int) {
	t.Helper()
	if ways[n].fate == once {
		prepareOurs(t, address, files)
		return
	}
	db, err := connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows strings.Builder
	for i := range files {
		fmt.Fprintf(&rows, ", (%d, '/inbox/%d.csv')", i, i)
	}
	for _, statement := range []string{
		"DROP TABLE IF EXISTS file_info",
		`CREATE TABLE file_info (id integer PRIMARY KEY, path text NOT NULL, uploaded timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
			processed boolean NOT NULL DEFAULT FALSE, lock_id text)`,
		"INSERT INTO file_info (id, path) VALUES " + rows.String()[2:],
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

func prepareOurs(t *testing.T, address string, files int) {
	t.Helper()
	l, closeLedger, err := openLedger(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLedger()
	if _, left, err := l.Forget(t.Context(), "test", ledger.Filter{Kinds: []string{kind}}); err != nil || left > 0 {
		t.Fatalf("%d items of the night before are left: %v", left, err)
	}
	for from := 0; from < files; from += ledger.MaxBatch {
		items := make([]ledger.NewItem, min(ledger.MaxBatch, files-from))
		for i := range items {
			items[i] = ledger.NewItem{Kind: kind, Key: strconv.Itoa(from + i)}
		}
		if _, err := l.Add(t.Context(), items...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWays: what becomes of the files, by way, number of machines and size of batch.
func TestWays(t *testing.T) {
	const files = 400
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		for n, way := range ways {
			if way.fate == byChance || way.fate == onceByChance {
				continue // TestUpdateWithLimit
			}
			for _, nodes := range []int{2, 4} {
				for _, batch := range []int{10, 100} {
					got := night(t, address, n, nodes, batch, files)
					t.Logf("%-22s  %d nodes, batches of %3d: %3d doubled, %d claims got less than seen, %d stopped early, %d deadlocks, shares %v",
						way.name, nodes, batch, got.doubled, got.less, got.early, got.dead, got.shares)
					if got.lost > 0 {
						t.Errorf("%s: %d files were not worked", way.name, got.lost)
					}
					if way.fate != doubled && got.doubled > 0 {
						t.Errorf("%s: %d files doubled", way.name, got.doubled)
					}
					if least := (nodes - 1) * batch; way.fate == doubled && got.doubled < least {
						t.Errorf("%s: %d files doubled; the first batches alone are %d", way.name, got.doubled, least)
					}
					if way.fate == leftEarly && (got.less == 0 || got.early == 0) {
						t.Errorf("%s: %d claims got less than seen and %d workers stopped early, want some", way.name, got.less, got.early)
					}
				}
			}
		}
	})
}

// TestUpdateWithLimit: at READ COMMITTED the article's statement, which waits for a row that somebody
// else is stamping, stamps it over: Postgres looks at the outer condition again, which only names ids.
// SKIP LOCKED mends it. On SQLite one transaction writes at a time, so it is safe.
func TestUpdateWithLimit(t *testing.T) {
	const files, nodes = 2000, 4
	t.Parallel()
	exampletest.Databases(t, func(t *testing.T, address string) {
		t.Parallel()
		onPostgres := !strings.HasPrefix(address, "sqlite:")
		for n, way := range ways {
			const rounds = 30 // at most; one is mostly enough
			switch {
			case way.fate == byChance && onPostgres:
				doubled := 0
				for round := 0; round < rounds && doubled == 0; round++ {
					for _, batch := range []int{10, 100} {
						got := night(t, address, n, nodes, batch, files)
						t.Logf("%s, %d nodes, batches of %3d: %d of %d doubled, %d times nothing though there was something, %d deadlocks, shares %v",
							way.name, nodes, batch, got.doubled, files, got.early, got.dead, got.shares)
						doubled += got.doubled
					}
				}
				if doubled == 0 {
					t.Errorf("%s: no file doubled in %d rounds", way.name, rounds)
				}
			case way.fate == byChance, way.fate == onceByChance && onPostgres, way.fate == once:
				for _, batch := range []int{10, 100} {
					got := night(t, address, n, nodes, batch, files)
					t.Logf("%s, %d nodes, batches of %3d: %d of %d doubled, %d times nothing though there was something, %d deadlocks, shares %v",
						way.name, nodes, batch, got.doubled, files, got.early, got.dead, got.shares)
					if got.doubled+got.lost > 0 {
						t.Errorf("%s: %d files doubled, %d were not worked", way.name, got.doubled, got.lost)
					}
				}
			}
		}
	})
}
