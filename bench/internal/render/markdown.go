package render

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
)

// block matches a part of a document that is made from a report: the text between these two lines.
var block = regexp.MustCompile(`(?s)<!-- bench:([a-z-]+) -->\n.*?<!-- /bench -->`)

// Fill makes the blocks of a document again.
func Fill(text string, r *Report) (string, error) {
	var unknown error
	filled := block.ReplaceAllStringFunc(text, func(old string) string {
		name := block.FindStringSubmatch(old)[1]
		content, ok := part(name, r)
		if !ok {
			unknown = fmt.Errorf("there is no block %q", name)
		}
		return fmt.Sprintf("<!-- bench:%s -->\n%s\n<!-- /bench -->", name, content)
	})
	return filled, unknown
}

func part(name string, r *Report) (string, bool) {
	switch name {
	case "about":
		return "- " + strings.Join(about(r), "\n- "), true
	case "targets":
		return targets(r), true
	case "figures":
		return figures(r, func(s measure.Result) bool { return s.Growth == "" }), true
	case "expect":
		return expect(r), true
	case "peers":
		return beside(r), true
	case "summary":
		return summary(r), true
	}
	if growth, ok := strings.CutPrefix(name, "growth-"); ok {
		return figures(r, func(s measure.Result) bool { return s.Growth == growth }), true
	}
	return "", false
}

func targets(r *Report) string {
	var b strings.Builder
	b.WriteString("| what | measured | of the rounds | target | |\n|---|---|---|---|---|\n")
	met, all := 0, 0
	for _, s := range r.Results {
		for _, v := range s.Verdicts {
			all++
			mark := verdict(v)
			if v.Met {
				met++
			} else {
				mark = "**not met**"
			}
			fmt.Fprintf(&b, "| %s | %s | %s – %s | %s | %s |\n", v.Text, number(s, v, v.Value), number(s, v, v.Low),
				number(s, v, v.High), bound(s, v), mark)
		}
	}
	fmt.Fprintf(&b, "\n%d of %d met.", met, all)
	return b.String()
}

// figures returns the tables of some scenarios: a row per side, a column per metric.
func figures(r *Report, which func(measure.Result) bool) string {
	var b strings.Builder
	for _, s := range r.Results {
		if !which(s) {
			continue
		}
		fmt.Fprintf(&b, "**%s.** %s\n\n| |", upper(s.Title), s.About)
		for _, m := range s.Metrics {
			fmt.Fprintf(&b, " %s |", m.Name)
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(s.Metrics)) + "\n")
		for _, side := range s.Sides {
			fmt.Fprintf(&b, "| %s |", side)
			for _, m := range s.Metrics {
				b.WriteString(" " + cell(s, side, m) + " |")
			}
			b.WriteString("\n")
		}
		if s.Error != "" {
			fmt.Fprintf(&b, "\nFailed: %s\n", strings.ReplaceAll(s.Error, "\n", " "))
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}

func cell(s measure.Result, side string, m measure.Metric) string {
	f := s.Of(side, m.Name)
	switch {
	case f == nil:
		return ""
	case len(f.Values) == 1:
		return measure.Format(f.Median, m.Unit)
	}
	return fmt.Sprintf("%s (%s – %s)", measure.Format(f.Median, m.Unit), measure.Format(f.Min, m.Unit),
		measure.Format(f.Max, m.Unit))
}

// expect returns what ledgerd reaches on each database.
func expect(r *Report) string {
	var b strings.Builder
	b.WriteString("| | Postgres | SQLite |\n|---|---|---|\n")
	for _, row := range []struct {
		text, metric string
		of           [2][2]string // scenario and side, on Postgres and on SQLite
	}{
		{"worked in a Go program", "drain", [2][2]string{{"drain-postgres", "ledgerd"}, {"drain-sqlite", "ledgerd"}}},
		{"worked through a plugin's process", "drain",
			[2][2]string{{"drain-postgres", "ledgerd, plugin"}, {"drain-sqlite", "ledgerd, plugin"}}},
		{"added by one client", "add", [2][2]string{{"add-postgres", "ledgerd, 1 client"}, {"drain-sqlite", "ledgerd"}}},
		{"from add to start on an idle system, median", "p50",
			[2][2]string{{"start-postgres", "ledgerd"}, {"start-sqlite", "ledgerd"}}},
	} {
		fmt.Fprintf(&b, "| %s |", row.text)
		for _, of := range row.of {
			cell, side := "–", of[1]
			if s := r.result(of[0]); s != nil && s.Of(side, row.metric) != nil {
				i := slices.IndexFunc(s.Metrics, func(m measure.Metric) bool { return m.Name == row.metric })
				cell = measure.Format(s.Of(side, row.metric).Median, s.Metrics[i].Unit)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\nMeasured on %s with ledgerd %s on %s with %d cores. Database, ledgerd and plugin share these cores.",
		r.Date, r.About.Commit, r.About.CPU, r.About.Cores)
	return b.String()
}

// queues matches the names of the peers, with which the names of their sides begin.
var queues = regexp.MustCompile(`^(River|graphile-worker|goqite|backlite)\b`)

// beside returns the targets that compare ledgerd with another queue.
func beside(r *Report) string {
	var b strings.Builder
	b.WriteString("| | ratio | goal | |\n|---|---|---|---|\n")
	for _, s := range r.Results {
		for _, v := range s.Verdicts {
			if !slices.ContainsFunc(v.Of, queues.MatchString) {
				continue
			}
			mark := "reached"
			if !v.Met {
				mark = "**not reached**"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", v.Text, number(s, v, v.Value), bound(s, v), mark)
		}
	}
	return strings.TrimSpace(b.String())
}

// summary returns the table of the README.
func summary(r *Report) string {
	var b strings.Builder
	b.WriteString("| | ledgerd | through a plugin's process | peers | ratio to the fastest of these peers (in process, through a plugin) |\n|---|---|---|---|---|\n")
	for _, row := range []struct {
		scenario, text, metric string
		ours                   []string
		peers                  map[string]string // side → name
	}{
		{"drain-postgres", "worked per second, Postgres", "drain", []string{"ledgerd", "ledgerd, plugin"},
			map[string]string{"graphile-worker": "graphile-worker", "River": "River"}},
		{"drain-sqlite", "worked per second, SQLite", "drain", []string{"ledgerd", "ledgerd, plugin"},
			map[string]string{"River": "River", "goqite": "goqite", "backlite": "backlite"}},
		{"add-postgres", "added per second, Postgres", "add", []string{"ledgerd, 1 client"},
			map[string]string{"graphile-worker, 1 client": "graphile-worker", "River, 1 client": "River"}},
		{"start-postgres", "time from add to start, Postgres, median", "p50", []string{"ledgerd"},
			map[string]string{"graphile-worker": "graphile-worker", "River": "River"}},
	} {
		s := r.result(row.scenario)
		if s == nil {
			continue
		}
		unit, less := s.Metrics[0].Unit, row.metric == "p50"
		best := 0.0
		var peers []string
		for _, side := range s.Sides {
			f := s.Of(side, row.metric)
			if row.peers[side] == "" || f == nil {
				continue
			}
			if best == 0 || less == (f.Median < best) {
				best = f.Median
			}
			peers = append(peers, row.peers[side]+" "+plain(f.Median, unit))
		}
		var ours, ratios []string
		for _, side := range row.ours {
			if f := s.Of(side, row.metric); f != nil && best > 0 {
				ratio := fmt.Sprintf("%.2f ×", f.Median/best)
				if less && f.Median > best {
					ratio += " slower"
				}
				ours, ratios = append(ours, plain(f.Median, unit)), append(ratios, ratio)
			}
		}
		for len(ours) < 2 {
			ours = append(ours, "")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.text, strings.Join(ours, " | "), strings.Join(peers, ", "),
			strings.Join(ratios, ", "))
	}
	if !r.Whole {
		b.WriteString("\n**Provisional:** from a part, or a short run.\n")
	}
	fmt.Fprintf(&b, "\n%s, %d cores with the database, every commit on the disk, items without work. "+
		"Ratios mostly carry over to\nother machines, rates do not.", r.About.CPU, r.About.Cores)
	return b.String()
}

// plain returns a figure for a row whose unit is per second.
func plain(v float64, unit string) string { return strings.TrimSuffix(measure.Format(v, unit), "/s") }

func (r *Report) result(name string) *measure.Result {
	for i, s := range r.Results {
		if s.Name == name {
			return &r.Results[i]
		}
	}
	return nil
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
