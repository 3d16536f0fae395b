package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/invariant"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// TestCheckSeesEachBreak breaks a sound record in one way each and wants the rule that names it.
func TestCheckSeesEachBreak(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	attempt := func(n int64, out Outcome, final bool) Attempt {
		return Attempt{ItemID: 1, Attempt: n, Epoch: 1, Outcome: out, Final: final}
	}
	done := func() Audited {
		return Audited{Record: Record{ID: 1, Identity: Identity{"k", "", "x"},
			Stored: Stored{Slot: scheduler.Slot("x")}, Epoch: 1},
			Attempts: []Attempt{attempt(1, OutcomeFailed, false), attempt(2, OutcomeDone, true)}}
	}
	leased := func() Audited {
		a := done()
		a.Attempts = a.Attempts[:1]
		a.Work = &Work{State: StateLeased, Epoch: 1, Attempt: 2, Agent: "a", LockID: uuid.Max, LeasedAt: now, ExpiresAt: now}
		return a
	}
	for _, c := range []struct {
		name, rule string
		record     func() Audited
		damage     func(*Audited)
	}{
		{"sound and done", "", done, func(*Audited) {}},
		{"sound and leased", "", leased, func(*Audited) {}},
		{"sound and pruned", "", done, func(a *Audited) { a.BaseAttempt, a.Attempts = 1, a.Attempts[1:] }},
		{"gap", "S2", done, func(a *Audited) { a.Attempts[1].Attempt = 3 }},
		{"restored", "", done, func(a *Audited) { a.Attempts[1].Attempt = 51 }},
		{"restored and leased", "", leased, func(a *Audited) { a.Work.Attempt = 51 }},
		{"gap after a floor", "S2", done, func(a *Audited) { a.Attempts[1].Attempt = 52 }},
		{"number used twice", "S2", done, func(a *Audited) { a.Attempts[1].Attempt = 1 }},
		{"pruned without a word", "S2", done, func(a *Audited) { a.Attempts = a.Attempts[1:] }},
		{"completed twice", "S4", done, func(a *Audited) { a.Attempts[0].Outcome = OutcomeSkipped }},
		{"completed and to be worked", "S4", done, func(a *Audited) {
			a.Work = &Work{State: StateReady, Epoch: 1, Attempt: 2}
		}},
		{"period completed twice", "S7", done, func(a *Audited) {
			a.Every = "day"
			for i := range a.Attempts {
				a.Attempts[i].Outcome, a.Attempts[i].Period = OutcomeDone, now
			}
		}},
		{"finished without an attempt", "S11", done, func(a *Audited) { a.Attempts = nil }},
		{"left without a final attempt", "S11", done, func(a *Audited) { a.Attempts[1] = attempt(2, OutcomeFailed, false) }},
		{"live attempt is not the next", "S11", leased, func(a *Audited) { a.Work.Attempt = 3 }},
		{"claims are missing", "S11", leased, func(a *Audited) { *a.Work = Work{State: StateReady, Epoch: 1, Attempt: 5} }},
		{"lease without a holder", "state", leased, func(a *Audited) { a.Work.Agent = "" }},
		{"lease without a token", "state", leased, func(a *Audited) { a.Work.LockID = uuid.Nil }},
		{"lease without an end", "state", leased, func(a *Audited) { a.Work.ExpiresAt = time.Time{} }},
		{"ready with a holder", "state", leased, func(a *Audited) { a.Work.State, a.Work.Attempt = StateReady, 1 }},
		{"round of the future", "state", leased, func(a *Audited) { a.Work.Epoch = 2 }},
		{"checksum of before", "", done, func(a *Audited) { a.Checksum = a.Identity.Checksum(a.Payload) }},
		{"checksum of a pruned payload", "", done, func(a *Audited) { a.Checksum, a.Payload = 1, []byte{} }},
		{"another payload", "checksum", done, func(a *Audited) {
			a.Checksum, a.Payload = a.Identity.Checksum(a.Payload), []byte("other")
		}},
		{"a text that moved", "checksum", done, func(a *Audited) {
			a.Checksum = Identity{Kind: a.Kind + a.Key}.Checksum(a.Payload)
		}},
		{"wrong slot", "slot", done, func(a *Audited) { a.Slot++ }},
	} {
		a := c.record()
		c.damage(&a)
		bad := a.check([]int64{50})
		if c.rule == "" && len(bad) > 0 || c.rule != "" && !slices.ContainsFunc(bad, func(v invariant.Violation) bool {
			return v.Rule == c.rule && v.ItemID == 1
		}) {
			t.Errorf("%s: got %s, want %q", c.name, fmt.Sprint(bad), c.rule)
		}
	}
}

// TestNoNextFloor: a floor that would leave no room for numbers is refused, with the reason.
func TestNoNextFloor(t *testing.T) {
	for _, c := range []struct {
		floors []int64
		given  int64
		now    time.Time
		want   string
	}{
		{nil, 17, time.Date(2401, 2, 3, 0, 0, 0, 0, time.UTC), "clock of the database is at 2401-02-03 00:00:00"},
		{nil, 17, time.Date(2312, 1, 1, 0, 0, 0, 0, time.UTC), "clock of the database"},
		{[]int64{maxFloor - 1}, 17, dayOne, "raised above 9007199254739000"},
		{nil, 1 << 60, dayOne, "raised above 1152921504606846976"},
	} {
		floor, err := nextFloor(c.floors, c.given, c.now)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %d, with %d given, at %s: %d, %v", c.floors, c.given, c.now, floor, err)
		}
	}
}

// TestNextFloor: a floor is above all earlier numbers, also if the clock is wrong, and differs a second later.
func TestNextFloor(t *testing.T) {
	at := dayOne.Add(1000 * time.Hour)
	for _, c := range []struct {
		floors []int64
		given  int64
		now    time.Time
		want   int64
	}{
		{nil, 17, at, 3_600_000_000},
		{nil, 17, at.Add(time.Second), 3_600_001_000},
		{[]int64{3_600_000_000}, 17, at, 3_601_000_000},
		{[]int64{3_600_000_000}, 17, dayOne.Add(-time.Hour), 3_601_000_000},
		{nil, 4_000_000_000_999, at, 4_001_000_000},
		{nil, 0, time.Time{}, 1_000_000},
	} {
		if got, err := nextFloor(c.floors, c.given, c.now); err != nil || got != c.want {
			t.Errorf("after %d, with %d given, at %s: %d, %v, want %d", c.floors, c.given, c.now, got, err, c.want)
		}
	}
}
