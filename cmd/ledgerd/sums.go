package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// sums adds up what the outputs of done items count, in the fields that the plugin marks for it. So a
// run says that some items have bad rows though all are done.
type sums map[string]float64

func newSums(output *settings.Schema) sums {
	s := sums{}
	for _, f := range output.Fields() {
		if f.Sum {
			s[f.Name] = 0
		}
	}
	return s
}

// add takes in an output.
func (s sums) add(output []byte) {
	if len(s) == 0 {
		return
	}
	var fields any
	if json.Unmarshal(output, &fields) != nil {
		return // it has no fields
	}
	for name := range s {
		at := fields
		for part := range strings.SplitSeq(name, ".") {
			object, _ := at.(map[string]any)
			at = object[part]
		}
		n, _ := at.(float64)
		s[name] += n
	}
}

// parts are the sums for a line of a report: "bad_rows 3".
func (s sums) parts() (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s[name] != 0 {
			texts = append(texts, name+" "+report.Count(int64(s[name])))
		}
	}
	return texts
}
