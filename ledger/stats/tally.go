package stats

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Minute counts attempts of a kind that ended within one minute. Workers add them up and write them
// every few seconds, so that rates and charts never count attempts. They are not exact: a worker
// that is killed loses what it had not written, and a write whose answer was lost is made twice.
type Minute struct {
	At     time.Time // start of the minute
	Kind   string
	Agent  string        // that worked; "" in sums over all agents
	Done   int64         // done or skipped
	Failed int64         // failed or crashed
	Other  int64         // with any other outcome
	Worked time.Duration // in handlers, in whole microseconds
	// Waits and Works are of the attempts that began: from due to begin, and from begin to end. In a worker an attempt
	// begins when the handler gets the item, otherwise with the claim.
	Waits, Works Latencies
}

// Ended returns the number of attempts.
func (m Minute) Ended() int64 { return m.Done + m.Failed + m.Other }

// Add adds the figures of o.
func (m *Minute) Add(o Minute) {
	m.Done += o.Done
	m.Failed += o.Failed
	m.Other += o.Other
	m.Worked += o.Worked
	m.Waits.Add(o.Waits)
	m.Works.Add(o.Works)
}

// MinutesKept is how long a ledger keeps minutes. Statistics are about the last hour.
const MinutesKept = 2 * time.Hour

// Sums adds up minutes until they are written. The zero value is ready; it may be used by several goroutines.
type Sums struct {
	mu   sync.Mutex
	sums map[sum]*Minute
}

type sum struct {
	at          int64 // minutes of Unix time: cheaper to look up than a time.Time
	kind, agent string
}

// Add adds to the minute of m.At.
func (s *Sums) Add(m Minute) {
	key := sum{m.At.Unix() / 60, m.Kind, m.Agent}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil {
		s.sums = map[sum]*Minute{}
	}
	have := s.sums[key]
	if have == nil {
		have = &Minute{At: time.Unix(60*key.at, 0), Kind: m.Kind, Agent: m.Agent}
		s.sums[key] = have
	}
	have.Add(m)
}

// Take empties the sums. It returns the newest minutes, oldest first, up to most of them; the others are lost.
func (s *Sums) Take(most int) []Minute {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Minute, 0, len(s.sums))
	for _, m := range s.sums {
		list = append(list, *m)
	}
	s.sums = nil
	slices.SortFunc(list, func(a, b Minute) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Agent, b.Agent))
	})
	return list[max(0, len(list)-most):]
}
