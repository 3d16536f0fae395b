package storetest

import (
	"context"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// This file compares random calls on named locks. Their times to live are so long that no lock is renewed during the
// test: only the clock of the test advances.

var lockNames = rapid.SampledFrom([]string{"l", "é%_", "5\n"})

func (m *machine) acquire(t *rapid.T) {
	name := lockNames.Draw(t, "lock")
	o := locks.Options{Holder: agentNames.Draw(t, "holder"),
		TTL:     time.Duration(rapid.IntRange(1, 24).Draw(t, "ttl")) * time.Hour,
		AtLeast: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 24}).Draw(t, "at least")) * time.Hour}
	got := both(m, t, "acquire", func(_ int, l *ledger.Ledger) (*locks.Lock, error) {
		_, lock, err := locks.New(l).Acquire(m.tb.Context(), name, o)
		return lock, err
	})
	if got[0] == nil {
		return
	}
	for i, lock := range got {
		if lock.Fence <= m.fences[i] {
			t.Fatalf("fence %d after %d", lock.Fence, m.fences[i])
		}
		m.fences[i] = lock.Fence
	}
	m.locks = append(m.locks, got)
}

func (m *machine) someLock(t *rapid.T) [2]*locks.Lock {
	if len(m.locks) == 0 {
		t.Skip("no lock yet")
	}
	return rapid.SampledFrom(m.locks).Draw(t, "held")
}

func (m *machine) release(t *rapid.T) {
	pair := m.someLock(t)
	both(m, t, "release", func(i int, l *ledger.Ledger) (int, error) {
		return 0, locks.New(l).Release(m.tb.Context(), pair[i])
	})
}

func (m *machine) breakLock(t *rapid.T) {
	name := lockNames.Draw(t, "lock")
	from := both(m, t, "force release", func(_ int, l *ledger.Ledger) (locks.HeldError, error) {
		from, err := locks.New(l).ForceRelease(m.tb.Context(), "op", name)
		if from == nil {
			return locks.HeldError{}, err
		}
		return *from, err
	})
	if !m.repeated { // the first call may have released it
		same(t, "broken", unnumbered(from))
	}
}

func (m *machine) heldLocks(t *rapid.T) {
	held := both(m, t, "held locks", func(_ int, l *ledger.Ledger) ([]locks.HeldError, error) {
		return locks.New(l).Held(m.tb.Context())
	})
	for i := range held[0] {
		pair := unnumbered([2]locks.HeldError{held[0][i], held[1][i]})
		held[0][i], held[1][i] = pair[0], pair[1]
	}
	alike(t, "held", held)
	for i, s := range m.stores {
		if _, _, err := s.Locks(m.tb.Context(), "l"); err != nil {
			t.Fatal(i, err)
		}
	}
}

// unnumbered removes the fencing numbers, since they differ between two ledgers.
func unnumbered(pair [2]locks.HeldError) [2]locks.HeldError {
	pair[0].Fence, pair[1].Fence = 0, 0
	return pair
}

// leave stops the renewal of all locks.
func (m *machine) leave() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, pair := range m.locks {
		for i, l := range m.l {
			_ = locks.New(l).Release(ended, pair[i]) // the context has ended, so no database call is made
		}
	}
}
