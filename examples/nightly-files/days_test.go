package nightlyfiles

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/exampletest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// daily is the program of a machine whose clock is off: it adds its files, works what is due, and
// prints for each file the day of its work. Arguments: address, time, zone.
func daily(args []string) error {
	ctx := context.Background()
	clock, err := time.Parse(time.RFC3339Nano, args[1])
	if err != nil {
		return err
	}
	fmt.Println("started")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	began := time.Now()
	l, closeLedger, err := openLedger(ctx, args[0], func() time.Time { return clock.Add(time.Since(began)) })
	if err != nil {
		return err
	}
	defer closeLedger()
	items := make([]ledger.NewItem, dailyFiles)
	for i := range items {
		items[i] = ledger.NewItem{Kind: kind, Key: fmt.Sprintf("/inbox/%d.csv", i), Every: "day", Zone: args[2]}
	}
	if _, err := l.Add(ctx, items...); err != nil {
		return err
	}
	for agent := rand.Text(); ; {
		if _, err := l.Promote(ctx, bounds.MaxBatch); err != nil {
			return err
		}
		leases, err := l.Claim(ctx, ledger.Claim{Kind: kind, Agent: agent, Limit: 4})
		if err != nil || len(leases) == 0 {
			return err
		}
		for _, lease := range leases {
			fmt.Println(lease.Round, lease.Key)
			if err := l.Finish(ctx, ledger.Ending{Lease: lease, Result: ledger.Done(nil)})[0]; err != nil {
				return err
			}
		}
	}
}

const dailyFiles = 24

// TestOncePerDay: two machines, started at the same instant of many days. The day is the zone's,
// however long it is: on days with 23 and 25 hours, where a day begins at one o'clock, where one was
// left out, and when midnight passes while they work.
func TestOncePerDay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		zone  string
		times []string // local; each a start of all machines
	}{
		{"Europe/Berlin", []string{"2026-03-28 23:59:00", "2026-03-29 00:00:00", "2026-03-29 23:59:00",
			"2026-03-30 00:00:00"}},
		{"Europe/Berlin", []string{"2026-10-24 23:59:00", "2026-10-25 00:00:00", "2026-10-25 23:59:00",
			"2026-10-26 00:00:00"}},
		{"Asia/Beirut", []string{"2026-03-28 23:59:00", "2026-03-29 01:00:00", "2026-03-29 23:59:00"}},
		{"Pacific/Apia", []string{"2011-12-29 01:00:00", "2011-12-29 23:59:00", "2011-12-31 00:00:00"}},
		{"Europe/Berlin", []string{"2026-11-20 23:59:59.9", "2026-11-21 12:00:00"}},
	} {
		t.Run(tt.zone+" "+tt.times[1][:10], func(t *testing.T) {
			t.Parallel()
			exampletest.Databases(t, func(t *testing.T, address string) {
				t.Parallel()
				zone, err := time.LoadLocation(tt.zone)
				if err != nil {
					t.Fatal(err)
				}
				worked := map[string]int{} // by day and file
				days := map[string]bool{}
				for _, text := range tt.times {
					at, err := time.ParseInLocation("2006-01-02 15:04:05", text, zone)
					if err != nil {
						t.Fatal(err)
					}
					days[text[:10]] = true
					before := len(worked)
					tell(worked, allAt(t, address, at, tt.zone))
					if got := len(worked) - before; got > 0 && !strings.Contains(text, ".9") && got != dailyFiles {
						t.Errorf("%s: %d files of %d", text, got, dailyFiles)
					}
				}
				for what, times := range worked {
					if times > 1 {
						t.Errorf("%s was worked %d times", what, times)
					}
					if !days[what[:10]] {
						t.Errorf("%s was worked", what)
					}
				}
				for day := range days {
					n := 0
					for what := range worked {
						if strings.HasPrefix(what, day) {
							n++
						}
					}
					if n != dailyFiles && day != "2026-11-20" { // on which there was a tenth of a second
						t.Errorf("on %s %d of %d files were worked", day, n, dailyFiles)
					}
				}
			})
		})
	}
}

// allAt has all machines start at a time, and returns their output.
func allAt(t *testing.T, address string, at time.Time, zone string) (said string) {
	t.Helper()
	programs := make([]*exampletest.Program, 2)
	for i := range programs {
		programs[i] = exampletest.Start(t, exec.Command(os.Args[0], "daily", address, at.UTC().Format(time.RFC3339Nano),
			zone))
	}
	for _, p := range programs {
		p.Next(t)
	}
	for _, p := range programs {
		if _, err := fmt.Fprintln(p.In); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range programs {
		said += p.End(t, 0)
	}
	return said
}

func tell(worked map[string]int, said string) {
	for line := range strings.Lines(said) {
		worked[strings.TrimSpace(line)]++
	}
}

// kind of the items that are files.
const kind = "file"

// openLedger opens the ledger at an address, by this clock; nil is the right one. The second result
// closes it.
func openLedger(ctx context.Context, address string, now func() time.Time) (*ledger.Ledger, func(), error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		s, err := sqlite.Open(ctx, path, sqlite.Options{Now: now})
		if err != nil {
			return nil, nil, err
		}
		l := ledger.New(s, ledger.Options{})
		return l, func() { _ = l.Close() }, nil
	}
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	s, err := postgres.Open(ctx, pool, postgres.Options{Schema: config.ConnConfig.RuntimeParams["search_path"], Now: now})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	l := ledger.New(s, ledger.Options{})
	return l, func() { _ = l.Close(); pool.Close() }, nil
}
