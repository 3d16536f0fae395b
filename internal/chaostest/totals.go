//go:build unix

package chaostest

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"text/tabwriter"
)

// Totals are the figures of all runs, by database and fault.
type Totals []*Total

// Total is the sum of all runs with a fault on a database.
type Total struct {
	Database   Database
	Fault      Fault
	Counted    int // runs that are not void
	Void       int
	Completed  int            // items
	Calls      int            // recorded in the histories
	Unanswered int            // calls whose outcome is unknown
	Unclear    int            // items that the second checker left out
	Hit        int            // attempts that a fault ended; see Result
	Repeated   int            // effects that came once more in a round
	Violations int            // broken promises, also of void runs
	Overtaking float64        // the longest of all runs
	Faults     map[string]int // how often each happened
	// Recovered counts recoveries by their duration in tenths of a second, rounded up.
	Recovered map[int]int
}

// Add adds a run.
func (t *Totals) Add(r Result) {
	i := slices.IndexFunc(*t, func(s *Total) bool { return s.Database == r.Plan.Database && s.Fault == r.Plan.Fault })
	if i < 0 {
		i = len(*t)
		*t = append(*t, &Total{Database: r.Plan.Database, Fault: r.Plan.Fault,
			Faults: map[string]int{}, Recovered: map[int]int{}})
	}
	s := (*t)[i]
	s.Violations += len(r.Violations)
	if r.Void() != "" {
		s.Void++
		return
	}
	s.Counted++
	s.Completed += r.Completed
	s.Calls += r.Calls
	s.Unanswered += r.Unanswered
	s.Unclear += r.Unclear
	s.Hit += r.Hit
	s.Repeated += r.Repeated
	s.Overtaking = max(s.Overtaking, r.Overtaking)
	for name, n := range r.Faults {
		s.Faults[name] += n
	}
	for _, seconds := range r.Recovered {
		s.Recovered[int(math.Ceil(seconds*10))]++
	}
}

// quantile returns the duration in seconds that this share of recoveries did not exceed.
func (t *Total) quantile(share float64) float64 {
	n := 0
	for _, count := range t.Recovered {
		n += count
	}
	left := int(math.Ceil(share * float64(n)))
	for _, tenths := range slices.Sorted(maps.Keys(t.Recovered)) {
		if left -= t.Recovered[tenths]; left <= 0 {
			return float64(tenths) / 10
		}
	}
	return 0
}

// faultCount returns how often the fault of this row happened. Failpoint and Plugin are counted by failpoint and mode.
func (t *Total) faultCount() (n int) {
	if t.Fault != Failpoint && t.Fault != Plugin {
		return t.Faults[string(t.Fault)]
	}
	for _, count := range t.Faults {
		n += count
	}
	return n
}

// Print prints a table.
func (t Totals) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "database\tfault\truns\tvoid\tfaults\thits\titems\tcalls\tunanswered\tunclear\trecovered "+
		"p50\tp99\tmax\trepeated\tovertaking\tviolations\t")
	for _, s := range t {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%d\t%.1f s\t%d\t\n", s.Database, s.Fault,
			s.Counted, s.Void, s.faultCount(), s.Hit, s.Completed, s.Calls, s.Unanswered, s.Unclear,
			s.quantile(.5), s.quantile(.99), s.quantile(1), s.Repeated, s.Overtaking, s.Violations)
	}
	return w.Flush()
}
