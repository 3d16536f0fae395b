package worker

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

type meter struct {
	mu              sync.Mutex
	claims, claimed int
	expired         int
	longest         time.Duration
}

func (m *meter) Claimed(kind string, items int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claims++
	m.claimed += items
	m.longest = max(m.longest, took)
}

func (m *meter) Expired(leases int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expired += leases
}

// The meter gets every claim, also those that find nothing, and the leases that were taken from other agents.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.addMany(12)
		if gone, err := r.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "gone", Limit: 5,
			TTL: 10 * time.Second}); err != nil || len(gone) != 5 {
			t.Fatal(gone, err)
		}
		var m meter
		stop := r.run(r.worker(Func(done), func(c *Config) { c.Meter = &m }))
		elapse(time.Minute)
		stop()
		if m.claimed != 12 || m.claims < 5 || m.expired != 5 || m.longest > time.Second {
			t.Errorf("%d claims of %d items, the longest %s; %d expired", m.claims, m.claimed, m.longest, m.expired)
		}
	})
}
