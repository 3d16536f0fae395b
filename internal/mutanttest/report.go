//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/chaostest"
)

// report is the result for one mutant.
type report struct {
	Name   string  `json:"name"`
	Bug    string  `json:"bug"`
	Origin string  `json:"origin,omitempty"`
	Caught bool    `json:"caught"` // by all its detectors
	By     []catch `json:"by"`

	invariant string
}

// catch is the result of one detector for a mutant.
type catch struct {
	Detector string         `json:"detector"`
	Caught   bool           `json:"caught"`
	Broken   map[string]int `json:"broken,omitempty"` // violations of each rule
	Failed   []string       `json:"failed,omitempty"` // tests
	Runs     int            `json:"runs,omitempty"`   // of the campaign
	Seconds  float64        `json:"seconds"`          // with the build

	output string // of the test, or the first violations of the campaign
}

func (c catch) String() string {
	found := strings.Join(c.Failed, " ")
	for _, rule := range sortedKeys(c.Broken) {
		found += fmt.Sprintf("%s×%d ", rule, c.Broken[rule])
	}
	if !c.Caught {
		found = "NOT CAUGHT " + found + "\n" + c.output
	}
	return fmt.Sprintf("%s: %s (%.0f s)", c.Detector, strings.TrimSpace(found), c.Seconds)
}

func (r report) String() string {
	verdict := "caught"
	if !r.Caught {
		verdict = "SURVIVED"
	}
	text := fmt.Sprintf("%-8s %s", verdict, r.Name)
	for _, c := range r.By {
		text += "\n         " + c.String()
	}
	return text
}

// summary returns the detector and the broken rules, for a table.
func (c catch) summary() string {
	what := c.Detector
	if len(c.Broken) > 0 {
		what += ": " + strings.Join(sortedKeys(c.Broken), ", ")
	}
	if !c.Caught {
		return "NOT " + what
	}
	return what
}

// load reads the reports in a file; none if there is no file.
func load(path string) (known []report, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	return known, err
}

// save merges reports into a file, in the order of the mutants, and returns all reports of the file. Reports for
// mutants that were not run stay.
func save(path string, all []report) (lines []report, err error) {
	known, err := load(path)
	if err != nil {
		return nil, err
	}
	for _, m := range mutants {
		named := func(r report) bool { return r.Name == m.name }
		if i := slices.IndexFunc(all, named); i >= 0 {
			lines = append(lines, all[i])
		} else if i := slices.IndexFunc(known, named); i >= 0 {
			known[i].invariant = m.invariant
			lines = append(lines, known[i])
		}
	}
	text, err := json.MarshalIndent(lines, "", " ")
	if err != nil {
		return nil, err
	}
	return lines, os.WriteFile(path, append(text, '\n'), 0o644)
}

// The lines of a document between which the table stands.
const (
	tableBegin = "<!-- mutants -->"
	tableEnd   = "<!-- end of mutants -->"
)

// writeTable puts a table of the reports into a document, between its marks.
func writeTable(path string, all []report) error {
	var b strings.Builder
	caught, byChaos := 0, 0
	for _, r := range all {
		if r.Caught {
			caught++
		}
		if slices.ContainsFunc(r.By, func(c catch) bool { return c.Caught && c.Runs > 0 }) {
			byChaos++
		}
	}
	fmt.Fprintf(&b, "\n%d planted, %d caught, %d of them by the chaos harness; `make mutants` repeats it.\n\n| breaks | "+
		"bug | seen in | caught by | time |\n|---|---|---|---|---:|\n", len(all), caught, byChaos)
	for _, r := range all {
		var by []string
		seconds := 0.0
		for _, c := range r.By {
			by = append(by, strings.ReplaceAll(c.summary(), "|", "\\|"))
			seconds += c.Seconds
		}
		fmt.Fprintf(&b, "| %s | **%s**: %s | %s | %s | %.0f s |\n", r.invariant, r.Name, r.Bug, r.Origin,
			strings.Join(by, "; "), seconds)
	}
	b.WriteString("\n")
	return chaostest.Fill(path, tableBegin, tableEnd, b.String())
}
