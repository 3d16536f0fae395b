package sqlstore

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Tallies implements ledger.Store.
func (s Store) Tallies(ctx context.Context, since time.Time) ([]stats.Minute, error) {
	return read(ctx, s, func(in Session) ([]stats.Minute, error) {
		var m stats.Minute
		var worked int64
		var waits, works string
		var sums []stats.Minute
		err := in.Query(`SELECT at, kind, done, failed, other, worked, waits, works
 FROM {{S}}.ledger_tallies WHERE at >= $1 ORDER BY at, kind`, []any{since},
			[]any{&m.At, &m.Kind, &m.Done, &m.Failed, &m.Other, &worked, &waits, &works}, func() (err error) {
				m.Worked = time.Duration(worked) * time.Microsecond
				if m.Waits, err = latencies(waits); err == nil {
					m.Works, err = latencies(works)
				}
				if n := len(sums); n > 0 && sums[n-1].At.Equal(m.At) && sums[n-1].Kind == m.Kind {
					sums[n-1].Add(m)
				} else {
					sums = append(sums, m)
				}
				return err
			})
		return sums, err
	})
}

// Latencies returns the text that is stored: a JSON array that ends with the last range that is not empty.
func Latencies(l stats.Latencies) string {
	n := len(l)
	for n > 0 && l[n-1] == 0 {
		n--
	}
	return document(l[:n])
}

func latencies(text string) (l stats.Latencies, err error) {
	err = parse(text, &l)
	return l, err
}

// LeasedBy implements ledger.Store.
func (s Store) LeasedBy(ctx context.Context) (map[string]int64, error) {
	return read(ctx, s, func(in Session) (map[string]int64, error) {
		held, agent, n := map[string]int64{}, "", int64(0)
		err := in.Query(`SELECT b.locked_by, count(*) FROM {{LEASED}} b GROUP BY b.locked_by`, nil,
			[]any{&agent, &n}, func() error { held[agent] = n; return nil })
		return held, err
	})
}
