package render

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"encoding/json"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
)

func report() *Report {
	return &Report{Results: []measure.Result{{
		Name: "drain-postgres", Title: "drain, Postgres", About: "It drains.", Metrics: []measure.Metric{{Name: "drain",
			Unit: "/s"}},
		Sides: []string{"ledgerd", "River"},
		Figures: []measure.Figures{
			{Side: "ledgerd", Metric: "drain", Values: []float64{90_000, 91_000}, Median: 90_500, Min: 90_000, Max: 91_000},
			{Side: "River", Metric: "drain", Values: []float64{25_000}, Median: 25_000, Min: 25_000, Max: 25_000},
		},
		Verdicts: []measure.Verdict{
			{Target: measure.Target{Text: "to River", Metric: "drain", Side: "ledgerd", Of: []string{"River"}, Min: 3.5, Aim: 5},
				Value: 3.62, Low: 3.6, High: 3.64, Met: true},
			{Target: measure.Target{Text: "more than there is", Metric: "drain", Side: "ledgerd", Min: 100_000}, Value: 90_500,
				Low: 90_000, High: 91_000},
		},
	}, {
		Name: "add-postgres", Title: "bulk add", Metrics: []measure.Metric{{Name: "add", Unit: "/s"}},
		Figures: []measure.Figures{{Side: "ledgerd, 1 client", Metric: "add", Median: 120_000}},
	}}}
}

// A block can be made again any number of times, and the text around it stays.
func TestFill(t *testing.T) {
	const before = "# Speed\n<!-- bench:targets -->\nold\n<!-- /bench -->\nend <!-- bench:figures -->\n<!-- /bench -->\n" +
		"<!-- bench:expect -->\n<!-- /bench -->\n<!-- bench:peers -->\n<!-- /bench -->\n"
	once, err := Fill(before, report())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Speed\n<!-- bench:targets -->\n| what |", "<!-- /bench -->\nend <!-- bench:figures -->\n**Drain, Postgres.** " +
			"It drains.",
		"| to River | 3.62 × | 3.60 × – 3.64 × | ≥ 3.50 ×, aim 5.00 × | met |", "| more than there is | 90,500/s | " +
			"90,000/s – 91,000/s | ≥ 100,000/s | **not met** |", "1 of 2 met.",
		"| ledgerd | 90,500/s (90,000/s – 91,000/s) |", "| River | 25,000/s |",
		"| worked in a Go program | 90,500/s | – |", "| added by one client | 120,000/s | – |",
		"|---|---|---|---|\n| to River | 3.62 × | ≥ 3.50 ×, aim 5.00 × | reached |\n<!-- /bench -->",
	} {
		if !strings.Contains(once, want) {
			t.Errorf("no %q in\n%s", want, once)
		}
	}
	if again, err := Fill(once, report()); err != nil || again != once {
		t.Errorf("made again it is another text, or an error: %v", err)
	}
	if _, err := Fill("<!-- bench:unknown -->\n<!-- /bench -->", report()); err == nil {
		t.Error("an unknown block is no error")
	}
}

func TestChart(t *testing.T) {
	svg := Chart(report())
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{"Postgres: items worked per second", ">ledgerd, in process<", ">90,500<",
		">River, in process<", "prefers-color-scheme: dark"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in\n%s", want, svg)
		}
	}
}

// The chart and the tables in the repository are made from results.json.
func TestDocuments(t *testing.T) {
	text, err := os.ReadFile("../../" + resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if chart, err := os.ReadFile("../../" + chartFile); err != nil || string(chart) != Chart(&r) {
		t.Errorf("%s is not made from %s (%v); go run -C bench . -render", chartFile, resultsFile, err)
	}
	for _, path := range documents {
		text, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Fill(string(text), &r)
		if err != nil || want != string(text) {
			t.Errorf("%s is not made from %s (%v); go run -C bench . -render", path, resultsFile, err)
		}
		if !strings.Contains(want, "<!-- bench:") {
			t.Errorf("%s shows no figures", path)
		}
	}
}
