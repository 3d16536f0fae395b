package runner

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Sums adds up the numbers in outputs of done items, in the fields that the plugin marks for it. So a run shows, for
// example, that some items have bad rows though all are done.
type Sums map[string]float64

func NewSums(output *settings.Schema) Sums {
	s := Sums{}
	for _, f := range output.Fields() {
		if f.Sum {
			s[f.Name] = 0
		}
	}
	return s
}

// Add adds the numbers of an output.
func (s Sums) Add(output []byte) {
	if len(s) == 0 {
		return
	}
	var fields any
	if json.Unmarshal(output, &fields) != nil {
		return // not an object
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

// Parts returns the sums for a line of a report: "bad_rows 3".
func (s Sums) Parts() (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s[name] != 0 {
			texts = append(texts, name+" "+report.Count(int64(s[name])))
		}
	}
	return texts
}
