//go:build unix

package chaostest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"text/tabwriter"
)

// Totals are the figures of all runs, also of earlier campaigns.
type Totals struct {
	Commit string `json:"-"` // of the runs that are added

	Runs  []*Total `json:"runs"`            // by database, fault and commit
	Soaks []Soak   `json:"soaks,omitempty"` // the newest of each database
}

// Total is the sum of all runs of one commit with a fault on a database.
type Total struct {
	Database   Database       `json:"database"`
	Fault      Fault          `json:"fault"`
	Commit     string         `json:"commit"`  // "until C" stands for several commits up to C
	Counted    int            `json:"counted"` // runs that are not void
	Void       int            `json:"void"`
	Completed  int            `json:"completed"`          // items
	Calls      int            `json:"calls"`              // recorded in the histories
	Unanswered int            `json:"unanswered"`         // calls whose outcome is unknown
	Unclear    int            `json:"unclear"`            // items that the second checker left out
	Hit        int            `json:"hit"`                // attempts that a fault ended; see Result
	Repeated   int            `json:"repeated"`           // effects that came once more in a round
	Violations int            `json:"violations"`         // broken promises, also of void runs
	Overtaking float64        `json:"overtaking_seconds"` // the longest of all runs
	Seconds    float64        `json:"seconds"`            // duration of all runs
	Faults     map[string]int `json:"faults"`             // how often each happened
	// Recovered counts recoveries by their duration in tenths of a second, rounded up.
	Recovered map[int]int `json:"recovered"`
}

// Add adds a run.
func (t *Totals) Add(r Result) {
	i := slices.IndexFunc(t.Runs, func(s *Total) bool {
		return s.Database == r.Plan.Database && s.Fault == r.Plan.Fault && s.Commit == t.Commit
	})
	if i < 0 {
		i = len(t.Runs)
		t.Runs = append(t.Runs, &Total{Database: r.Plan.Database, Fault: r.Plan.Fault, Commit: t.Commit,
			Faults: map[string]int{}, Recovered: map[int]int{}})
	}
	s := t.Runs[i]
	s.Seconds += r.Seconds
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

// LoadTotals reads the figures of earlier campaigns. A missing file means that there are none.
func LoadTotals(path string) (*Totals, error) {
	t := &Totals{}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || path == "" {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// Save writes the figures.
func (t *Totals) Save(path string) error {
	slices.SortFunc(t.Runs, func(a, b *Total) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Fault, b.Fault), cmp.Compare(a.Commit, b.Commit))
	})
	text, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
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
func (t *Totals) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "database\tfault\truns\tvoid\tfaults\thits\titems\tcalls\tunanswered\trecovered "+
		"p50\tp99\tmax\trepeated\tviolations\t")
	for _, s := range t.Runs {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%d\t%d\t\n", s.Database, s.Fault,
			s.Counted, s.Void, s.faultCount(), s.Hit, s.Completed, s.Calls, s.Unanswered,
			s.quantile(.5), s.quantile(.99), s.quantile(1), s.Repeated, s.Violations)
	}
	return w.Flush()
}
