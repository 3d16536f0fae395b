package runner

import (
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
)

// Progress is the progress of a run or a worker.
type Progress struct {
	Total   int64 `json:"total"` // inputs known so far; of a worker 0
	Ended   int64 `json:"ended"`
	Done    int64 `json:"done"`
	Failed  int64 `json:"failed"`  // for good: dead or in doubt
	Failing int64 `json:"failing"` // attempts that failed
	// Item is the item of the plugin's last report, nil if there was none lately.
	Item *ItemProgress `json:"item,omitempty"`
	// Waits names what the program waits for while it has no work; "" if it works.
	Waits string `json:"waits,omitempty"`

	Attempts int64 `json:"-"` // that ended
}

// ItemProgress is the progress of one item, as its plugin reported it.
type ItemProgress struct {
	ID    int64  `json:"id"`
	Key   string `json:"key"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: not known
	Unit  string `json:"unit"`
}

// String returns "big.csv 42 %", or "big.csv 1,200 rows" if the total is not known.
func (p *ItemProgress) String() string {
	if p == nil {
		return ""
	}
	name := report.Safe(path.Base(p.Key))
	if p.Total > 0 {
		return fmt.Sprintf("%s %d %%", name, 100*min(p.Done, p.Total)/p.Total)
	}
	return fmt.Sprintf("%s %s %s", name, report.Count(p.Done), report.Safe(p.Unit))
}

// LatestProgress is the newest progress that a plugin has reported for an item.
type LatestProgress struct {
	mu   sync.Mutex
	last ItemProgress
	at   time.Time
}

// Lately is how long a report of a plugin counts as new.
const Lately = 5 * time.Second

// Set records a report of a plugin.
func (n *LatestProgress) Set(p pluginhost.Progress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.at = ItemProgress{p.ItemID, p.Key, p.Done, p.Total, p.Unit}, time.Now()
}

// Item returns the newest report, nil if it is older than Lately.
func (n *LatestProgress) Item() *ItemProgress {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) > Lately {
		return nil
	}
	last := n.last
	return &last
}

// Position returns how many inputs have ended, or for a worker, how many attempts.
func (p Progress) Position() int64 {
	if p.Total > 0 {
		return p.Ended
	}
	return p.Attempts
}
