package runner

import (
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
)

// Progress is where a run or a worker is.
type Progress struct {
	Total   int64 `json:"total"` // inputs known so far; of a worker 0
	Ended   int64 `json:"ended"`
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`  // for good: dead or in doubt
	Failing int64 `json:"failing"` // attempts that failed
	// Item is the item of the plugin's last report, nil if there was none lately.
	Item *ItemProgress `json:"item,omitempty"`
	// Waits names the processes that it waits for, with nothing to do itself; "" if it works.
	Waits string `json:"waits,omitempty"`

	Attempts int64 `json:"-"` // that ended
}

// ItemProgress is how far one item is, by its plugin's report.
type ItemProgress struct {
	ID    int64  `json:"id"`
	Key   string `json:"key"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: not known
	Unit  string `json:"unit"`
}

// String is "big.csv 42 %".
func (p *ItemProgress) String() string {
	if p == nil {
		return ""
	}
	name := report.Safe(path.Base(p.Key))
	if p.Total > 0 {
		return fmt.Sprintf("%s %d %%", name, 100*min(p.Done, p.Total)/p.Total)
	}
	return fmt.Sprintf("%s %s %s", name, report.Count(p.Done), p.Unit)
}

// LatestProgress is the last progress that a plugin has reported of an item.
type LatestProgress struct {
	mu   sync.Mutex
	last ItemProgress
	at   time.Time
}

// Lately is how long a word of a plugin is news.
const Lately = 5 * time.Second

func (n *LatestProgress) Set(p pluginhost.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.at = ItemProgress{p.ItemID, p.Key, p.Done, p.Total, p.Unit}, time.Now()
}

func (n *LatestProgress) Item() *ItemProgress {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) > Lately {
		return nil
	}
	last := n.last
	return &last
}

// Position is how far it is: inputs that ended, or of a worker, attempts.
func (p Progress) Position() int64 {
	if p.Total > 0 {
		return p.Ended
	}
	return p.Attempts
}
