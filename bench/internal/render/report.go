// Package render shows the results of a run of the benchmark: as text, as JSON, as the tables of the documents and as a
// chart. Figures get into the documents only in this way.
package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/setup"
)

// Report is one run.
type Report struct {
	Date    string           `json:"date"`
	Rounds  int              `json:"rounds"`
	Scale   float64          `json:"scale"`
	Whole   bool             `json:"whole"` // all scenarios, at full size
	Seconds float64          `json:"seconds"`
	About   setup.About      `json:"about"`
	Results []measure.Result `json:"results"`
}

// Err returns an error with the scenarios that failed; a missed target is no error.
func (r *Report) Err() error {
	var all []error
	for _, s := range r.Results {
		if s.Error != "" {
			all = append(all, fmt.Errorf("%s: %s", s.Name, s.Error))
		}
	}
	return errors.Join(all...)
}

// The files, from the folder bench/.
const (
	resultsFile = "results.json"
	chartFile   = "chart.svg"
)

var documents = []string{"../docs/performance.md", "HISTORY.md", "../README.md"}

// Write writes a report as JSON.
func Write(path string, r *Report) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Save writes a report and all files that are made from it.
func Save(r *Report) error {
	if err := Write(resultsFile, r); err != nil {
		return err
	}
	return Again()
}

// Again makes these files again from the report that was saved last.
func Again() error {
	text, err := os.ReadFile(resultsFile)
	if err != nil {
		return err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	if err := os.WriteFile(chartFile, []byte(Chart(&r)), 0o644); err != nil {
		return err
	}
	for _, path := range documents {
		before, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		after, err := Fill(string(before), &r)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(after), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Header describes the machine of a run.
func Header(w io.Writer, r *Report) {
	for _, line := range about(r)[1:] {
		fmt.Fprintln(w, line)
	}
}

func about(r *Report) []string {
	a := r.About
	var versions, settings []string
	for _, name := range slices.Sorted(maps.Keys(a.Versions)) {
		versions = append(versions, name+" "+a.Versions[name])
	}
	for _, name := range slices.Sorted(maps.Keys(a.Postgres)) {
		settings = append(settings, name+" = "+a.Postgres[name])
	}
	whole := "all scenarios at full size"
	if !r.Whole {
		whole = fmt.Sprintf("a part, or a short run, at %g of the items: **provisional**", r.Scale)
	}
	disk := fmt.Sprintf("the disk has 4 KiB for good after %.2f ms (median of write and fsync)", a.SyncMS)
	if a.InMemory != "" {
		disk = fmt.Sprintf("**%s is in memory, not on a disk: commits cost nothing there, on no side**; -dir chooses the "+
			"folder of SQLite files", a.InMemory)
	}
	return []string{
		fmt.Sprintf("%s, ledgerd %s, %d rounds, %s; %.0f minutes", r.Date, a.Commit, r.Rounds, whole, r.Seconds/60),
		fmt.Sprintf("%s, %d cores, %s of memory; %s; load averages before: %s", a.CPU, a.Cores, a.Memory, a.System, a.Load),
		disk,
		strings.Join(versions, ", "),
		"Postgres: " + strings.Join(settings, ", "),
		"SQLite, all sides: journal_mode = WAL, synchronous = FULL",
	}
}

// Text prints the results, targets last.
func Text(w io.Writer, r *Report) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.Results {
		fmt.Fprintf(t, "%s (%s)\t\tmedian\tleast\tmost\t\n", s.Title, s.Name)
		for _, side := range s.Sides {
			for _, m := range s.Metrics {
				if f := s.Of(side, m.Name); f != nil {
					fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t\n", side, m.Name, measure.Format(f.Median, m.Unit),
						measure.Format(f.Min, m.Unit), measure.Format(f.Max, m.Unit))
				}
			}
		}
		if s.Error != "" {
			fmt.Fprintf(t, "  FAILED: %s\t\t\t\t\t\n", s.Error)
		}
	}
	t.Flush()
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "target\tvalue\tof the rounds\tto reach\t\t")
	for _, s := range r.Results {
		for _, v := range s.Verdicts {
			fmt.Fprintf(t, "%s\t%s\t%s – %s\t%s\t%s\t\n", v.Text, number(s, v, v.Value), number(s, v, v.Low),
				number(s, v, v.High), bound(s, v), verdict(v))
		}
	}
	t.Flush()
	fmt.Fprintf(w, "%.0f s\n", r.Seconds)
}

// unit returns the unit of a verdict's figures.
func unit(s measure.Result, v measure.Verdict) string {
	i := slices.IndexFunc(s.Metrics, func(m measure.Metric) bool { return m.Name == v.Metric })
	if len(v.Of) > 0 || i < 0 {
		return "x"
	}
	return s.Metrics[i].Unit
}

func number(s measure.Result, v measure.Verdict, value float64) string {
	text := measure.Format(value, unit(s, v))
	if len(v.Of) > 0 {
		text += " ×"
	}
	return text
}

func bound(s measure.Result, v measure.Verdict) string {
	text := "≥ " + number(s, v, v.Min)
	if v.Max > 0 {
		text = "≤ " + number(s, v, v.Max)
	}
	if v.Aim > 0 {
		text += ", aim " + number(s, v, v.Aim)
	}
	return text
}

func verdict(v measure.Verdict) string {
	switch {
	case !v.Met:
		return "NOT MET"
	case v.Aimed():
		return "met, with the aim"
	}
	return "met"
}
