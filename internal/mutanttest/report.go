//go:build unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report is the result for one mutant.
type report struct {
	mutant string
	caught bool // by all its detectors
	by     []catch
}

// catch is the result of one detector for a mutant.
type catch struct {
	detector string
	caught   bool
	broken   map[string]int // violations of each rule
	failed   []string       // tests
	seconds  float64        // with the build
	output   string         // of the test, or the first violations of the campaign
}

func (c catch) String() string {
	found := strings.Join(c.failed, " ")
	for _, rule := range slices.Sorted(maps.Keys(c.broken)) {
		found += fmt.Sprintf("%s×%d ", rule, c.broken[rule])
	}
	if !c.caught {
		found = "NOT CAUGHT " + found + "\n" + c.output
	}
	return fmt.Sprintf("%s: %s (%.0f s)", c.detector, strings.TrimSpace(found), c.seconds)
}

func (r report) String() string {
	verdict := "caught"
	if !r.caught {
		verdict = "SURVIVED"
	}
	text := fmt.Sprintf("%-8s %s", verdict, r.mutant)
	for _, c := range r.by {
		text += "\n         " + c.String()
	}
	return text
}
