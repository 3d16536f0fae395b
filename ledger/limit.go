package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file is the rule about limits: how many items of a kind are leased at a time, and how many in
// a time, by all processes together, in all and for each shard key.
//
// Running means leased, so what counts is what the ledger says, and a place is free again with the
// end of the lease, in whatever way. A store lets one claim of a limited kind run at a time, so
// between its look and its grants no place is taken and no rate used.
//
// Of a kind with limits by shard key a claim goes over the keys of which something is ready, in their
// order and in turns: the next claim begins behind the last key that got something. Keys that their rate
// holds back a store passes over by itself, since there may be thousands. Within a key, and of a kind
// without such limits, the order is that of all claims: (priority, due, id).
//
// A rate is kept by the generic cell rate algorithm: of each lane one time is kept, Next, which a
// grant moves on by Per/Count. It may be ahead of the database's clock by as much as Burst grants.
// So in any time t no more than Burst + t·Count/Per are granted.

// Limits of a kind, across all processes. A zero field is no limit.
type Limits struct {
	// MaxRunning is how many of its items are leased at a time, 0 … 100,000.
	MaxRunning int `json:"max_running,omitempty"`
	// MaxRunningPerShardKey is the same for each shard key.
	MaxRunningPerShardKey int `json:"max_running_per_shard_key,omitempty"`
	// Rate is how many items are leased in a time.
	Rate Rate `json:"rate,omitzero"`
	// RatePerShardKey is the same for each shard key.
	RatePerShardKey Rate `json:"rate_per_shard_key,omitzero"`
	// Burst is how many may be leased at once after a pause, for both rates, 0 … 100,000; 0 means 1.
	Burst int `json:"burst,omitempty"`
}

// Rate is a number of items in a time; the zero value is no limit.
type Rate struct {
	Count int           `json:"count"` // 1 … 1,000,000
	Per   time.Duration `json:"per"`   // 1 ms … 366 days
}

// Any says whether there is a limit.
func (l Limits) Any() bool { return l.MaxRunning > 0 || l.Rate.Count > 0 || l.ByKey() }

// ByKey says whether there is a limit for each shard key.
func (l Limits) ByKey() bool { return l.MaxRunningPerShardKey > 0 || l.RatePerShardKey.Count > 0 }

// String lists the limits: "max_running 10, rate 5/s".
func (l Limits) String() string {
	var list []string
	for _, n := range []struct {
		name  string
		value int
	}{{"max_running", l.MaxRunning}, {"max_running_per_shard_key", l.MaxRunningPerShardKey}, {"burst", l.Burst}} {
		if n.value > 0 {
			list = append(list, fmt.Sprintf("%s %d", n.name, n.value))
		}
	}
	for _, r := range []struct {
		name  string
		value Rate
	}{{"rate", l.Rate}, {"rate_per_shard_key", l.RatePerShardKey}} {
		if r.value.Count > 0 {
			list = append(list, r.name+" "+r.value.String())
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// ParseRate reads "100/s", "30/m", "1000/h", "50/d", "5/10s", and "0" for no limit.
func ParseRate(text string) (Rate, error) {
	if text == "0" {
		return Rate{}, nil
	}
	count, per, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(strings.TrimSpace(count))
	if per = strings.TrimSpace(per); per != "" && per[0] > '9' {
		per = "1" + per
	}
	d, perErr := ParseDuration(per)
	if r := (Rate{n, d}); err == nil && perErr == nil && r.inRange() {
		return r, nil
	}
	return Rate{}, fmt.Errorf("must be a number of items in a time such as \"100/s\", \"30/m\" or \"5/10s\", not %q", text)
}

func (r Rate) inRange() bool {
	return r.Count >= 1 && r.Count <= maxRateCount && r.Per >= minRatePer && r.Per <= maxRatePer && r.Per%time.Microsecond == 0
}

// String is the rate as one writes it: "5/s", "30/10m".
func (r Rate) String() string {
	if r.Count == 0 {
		return "0"
	}
	per := r.Per.String()
	for _, zero := range []string{"0s", "0m"} { // 10m0s is 10m
		if short := strings.TrimSuffix(per, zero); short != per && short != "" && short[len(short)-1] > '9' {
			per = short
		}
	}
	const day = 24 * time.Hour
	if r.Per%day == 0 {
		per = fmt.Sprintf("%dd", r.Per/day)
	}
	if len(per) == 2 {
		per = strings.TrimPrefix(per, "1")
	}
	return fmt.Sprintf("%d/%s", r.Count, per)
}

// interval between two grants, rounded up: never more than the rate.
func (r Rate) interval() time.Duration {
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

// allows says how many may be granted now, and if none, after how long the next.
func (r Rate) allows(now, next time.Time, burst int) (n int, wait time.Duration) {
	t := r.interval()
	room := time.Duration(max(burst, 1))*t - r.ahead(now, next, burst)
	if room < t {
		return 0, t - room
	}
	return int(room / t), 0
}

// ahead is how far next is ahead of the clock, or may be; see Admission.settle.
func (r Rate) ahead(now, next time.Time, burst int) time.Duration {
	return min(max(next.Sub(now), 0), time.Duration(max(burst, 1))*r.interval())
}

// after is Next after n more grants, in whole microseconds as it is kept.
func (r Rate) after(now, next time.Time, burst, n int) time.Time {
	at := now.Add(r.ahead(now, next, burst) + time.Duration(n)*r.interval())
	if rest := at.Nanosecond() % 1000; rest > 0 {
		at = at.Add(time.Duration(1000 - rest))
	}
	return at
}

// Lane is how the limits of a kind stand for one shard key, or in all.
type Lane struct {
	Key     string    // "": in all
	Running int       // leased; a store need not count beyond the limit
	Next    time.Time // of the rate; zero, or in the past: it has not been used lately
}

// maxLanes bounds the keys that a transaction looks at. The next one goes on from there.
const maxLanes = 5000

// Turn is where among the shard keys the next claim of a kind and shard begins.
type Turn struct {
	key string // behind this one
	// Of claims that found nothing, one after another, and have not yet been once round.
	vain, wrapped bool
	start         string
}

// goOn is the turn after a claim that found nothing as far as a key, and says whether there are keys at
// which neither it has looked nor those in vain before it.
func (t Turn) goOn(key string) (next Turn, more bool) {
	next = Turn{key: key, vain: true, wrapped: t.wrapped, start: t.start}
	if !t.vain {
		next.start = t.key
	}
	back := key <= t.key
	if back && t.wrapped || (back || t.wrapped) && key >= next.start {
		return Turn{key: key}, false
	}
	next.wrapped = back || t.wrapped
	return next, true
}

// Admission is a claim of a kind with limits, under way. A store walks it over what is ready, leases
// what was granted and writes down Moved.
type Admission struct {
	Granted []int64
	Moved   []Lane // whose Next is another
	More    bool   // nothing was granted, and there are keys that nobody has looked at; see Turn
	HeldBack

	now    time.Time
	limits Limits
	whole  Lane
	limit  int // of the claim
	room   int // left of limit, and of what the kind is allowed in all
	held   time.Duration
	full   bool // in all
	ended  bool // by an item that is to be claimed alone
}

// Admit begins a claim of up to limit items; whole is the lane of all of the kind.
func (k Kind) Admit(now time.Time, whole Lane, limit int) *Admission {
	a := &Admission{now: now, limits: k.Limits, whole: whole, limit: limit, room: limit}
	if n := k.Limits.MaxRunning; n > 0 {
		a.room = min(a.room, max(0, n-whole.Running))
		a.full = n <= whole.Running
	}
	if r := k.Limits.Rate; r.Count > 0 {
		a.whole = a.settle(r, whole)
		n, wait := r.allows(now, a.whole.Next, k.Limits.Burst)
		a.room, a.held = min(a.room, n), wait
	}
	return a
}

// settle brings back a Next that is further ahead than the burst allows: the clock was set back, or it
// is of a slower rate or a greater burst. The next grant comes after an interval then, and not when the
// clock has caught up.
func (a *Admission) settle(r Rate, l Lane) Lane {
	n := max(a.limits.Burst, 1)
	if furthest := r.after(a.now, time.Time{}, n, n); l.Next.After(furthest) {
		l.Next = furthest
		a.Moved = append(a.Moved, l)
	}
	return l
}

// Room is how many more may be granted in all. A claim that has granted nothing though there is room
// has found nothing, or nothing for whose shard key there is room.
func (a *Admission) Room() int { return a.room }

// heldByRate is which lanes their rate holds back. Those further ahead are to be settled.
func (a *Admission) heldByRate() (p Pass) {
	if r, n := a.limits.RatePerShardKey, max(a.limits.Burst, 1); r.Count > 0 {
		p.After, p.Until = a.now.Add(time.Duration(n-1)*r.interval()), r.after(a.now, time.Time{}, n, n)
	}
	return p
}

// passed notes why lanes were passed over.
func (a *Admission) passed(p Passed) {
	if p.Lanes > 0 {
		_, wait := a.limits.RatePerShardKey.allows(a.now, p.Next, a.limits.Burst)
		a.wait(wait)
	}
}

// allowed says how many more of a lane may be granted; if none, it notes why. What runs of a lane that
// its rate holds back does not matter.
func (a *Admission) allowed(l Lane) int {
	n, wait, full := a.room, a.held, a.full
	if most := a.limits.MaxRunningPerShardKey; most > 0 {
		n, full = min(n, max(0, most-l.Running)), full || most <= l.Running
	}
	if r := a.limits.RatePerShardKey; r.Count > 0 {
		l = a.settle(r, l)
		free, held := r.allows(a.now, l.Next, a.limits.Burst)
		if n, wait = min(n, free), max(wait, held); held > 0 {
			full = a.full
		}
	}
	switch {
	case n > 0 || a.limit == 0:
	case full:
		a.Full = true
	default:
		a.wait(wait)
	}
	return n
}

// take grants candidates of a lane, in the order of claims, and says how many.
func (a *Admission) take(l Lane, ready []Candidate) (n int) {
	for _, c := range ready {
		if c.Alone && len(a.Granted) > 0 {
			a.ended = true
			break
		}
		a.Granted = append(a.Granted, c.ID)
		a.room--
		n++
		if a.ended = c.Alone; a.ended {
			break
		}
	}
	if r := a.limits.RatePerShardKey; r.Count > 0 && n > 0 {
		l.Next = r.after(a.now, l.Next, a.limits.Burst, n)
		a.Moved = append(a.Moved, l)
	}
	return n
}

// Lanes is what a claim asks a store for.
type Lanes interface {
	// Next is the first lane after a key, in the order of bytes, of which something is ready and that is
	// not to be passed over; false when there is none.
	Next(after string, p Pass) (Lane, Passed, bool, error)
	// Ready are the first n of what is ready of a lane, in the order of claims.
	Ready(key string, n int) ([]Candidate, error)
}

// Pass is which lanes to pass over: those whose Next is later than After and not later than Until.
type Pass struct {
	After, Until time.Time
	End          string // not those behind this key; "": there is no end
	Look         int    // at so many lanes; the last of them is not passed over
}

// Over says whether to pass over a lane, after others.
func (p Pass) Over(l Lane, others Passed) bool {
	return others.Lanes+1 < p.Look && l.Next.After(p.After) && !l.Next.After(p.Until) && (p.End == "" || l.Key <= p.End)
}

// Passed is what was passed over.
type Passed struct {
	Lanes int
	Next  time.Time // the earliest of them
}

// And is p and a lane after it.
func (p Passed) And(l Lane) Passed {
	if p.Lanes == 0 || l.Next.Before(p.Next) {
		p.Next = l.Next
	}
	p.Lanes++
	return p
}

// Walk grants what may be granted. For a kind with limits by shard key it begins where its turn is, and
// returns that of the next claim.
func (a *Admission) Walk(at Turn, lanes Lanes) (next Turn, err error) {
	if !a.limits.ByKey() {
		err = a.visit(lanes)
	} else {
		var part bool
		next.key, part, err = a.walk(at.key, lanes)
		if part && len(a.Granted) == 0 {
			next, a.More = at.goOn(next.key)
		}
	}
	if n := len(a.Granted); n > 0 && a.limits.Rate.Count > 0 && err == nil {
		a.whole.Next = a.limits.Rate.after(a.now, a.whole.Next, a.limits.Burst, n)
		a.Moved = append(a.Moved, a.whole)
	}
	return next, err
}

// visit goes to the one lane of a kind without limits by shard key.
func (a *Admission) visit(lanes Lanes) error {
	n := a.allowed(Lane{})
	ready, err := lanes.Ready("", max(n, 1))
	if err != nil {
		return err
	}
	if len(ready) == 0 { // nothing is held back
		a.Full, a.Wait = false, 0
	}
	a.take(Lane{}, ready[:min(n, len(ready))])
	return nil
}

// walk goes once round the keys, or a part of it, or as far as it takes. If nothing may be granted in
// all, it looks only whether there is anything.
func (a *Admission) walk(at string, lanes Lanes) (next string, part bool, err error) {
	key, last, round := at, at, at == ""
	pass := a.heldByRate()
	for seen := 0; !a.ended && (a.room > 0 || seen == 0); {
		if seen == maxLanes {
			return key, true, nil
		}
		if pass.Look = maxLanes - seen; a.room == 0 {
			pass.Look = 1
		}
		l, passed, some, err := lanes.Next(key, pass)
		if err != nil {
			return at, false, err
		}
		a.passed(passed)
		seen += passed.Lanes
		if !some || round && at != "" && l.Key > at {
			if round {
				break
			}
			round, key, pass.End = true, "", at
			continue
		}
		key = l.Key
		seen++
		n := a.allowed(l)
		if n == 0 {
			continue
		}
		ready, err := lanes.Ready(key, n)
		if err != nil {
			return at, false, err
		}
		if a.take(l, ready) > 0 {
			last = key
		}
	}
	return last, false, nil
}

// limitField is the first limit that is set, for errors.
func limitField(l Limits) string {
	switch {
	case l.MaxRunning > 0:
		return "max_running"
	case l.MaxRunningPerShardKey > 0:
		return "max_running_per_shard_key"
	case l.Rate.Count > 0:
		return "rate"
	}
	return "rate_per_shard_key"
}

// gateKinds notes which kinds get items that need resources, and refuses such items of kinds with
// limits: an item waits for the one or the other.
func gateKinds(tx Tx, items []NewItem) error {
	var kinds []string
	for i := range items {
		if len(items[i].Resources) > 0 && !slices.Contains(kinds, items[i].Kind) {
			kinds = append(kinds, items[i].Kind)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	slices.Sort(kinds)
	limited, err := tx.Gate(kinds)
	if err != nil || len(limited) == 0 {
		return err
	}
	i := slices.IndexFunc(items, func(n NewItem) bool { return len(n.Resources) > 0 && slices.Contains(limited, n.Kind) })
	return &InvalidError{Index: i, Field: "resources", Reason: "kind " + items[i].Kind + " has limits, so its items cannot need resources; they belong into another kind"}
}

func itemsAre(n int, kind string) string {
	if n == 1 {
		return "1 item of kind " + kind + " is"
	}
	return fmt.Sprintf("%d items of kind %s are", n, kind)
}

// whyHeldBack explains an item that is ready, of a kind with limits; w says what else there is to say.
func (r *Record) whyHeldBack(w Reason, k Kind, c Crowding) Reason {
	limits := k.Limits
	key := cmp.Or(r.ShardKey, r.Key)
	if n := limits.MaxRunning; n > 0 && c.Whole.Running >= n {
		return Reason{Code: "max_running", Since: w.Since, Next: fmt.Sprintf("ledgerd kind set %s --max-running N", k.Name),
			Text: fmt.Sprintf("It is ready, but %s leased and no more than %d may be.", itemsAre(c.Whole.Running, k.Name), n)}
	}
	if n := limits.MaxRunningPerShardKey; n > 0 && c.Key.Running >= n {
		return Reason{Code: "max_running", Since: w.Since, Next: fmt.Sprintf("ledgerd kind set %s --max-running-per-shard-key N", k.Name),
			Text: fmt.Sprintf("It is ready, but %s leased for its shard key %s and no more than %d may be.", itemsAre(c.Key.Running, k.Name), key, n)}
	}
	var wait time.Duration
	held := Reason{Code: "rate", Since: w.Since}
	for _, rate := range []struct {
		rate Rate
		lane Lane
		of   string
		flag string
	}{{limits.Rate, c.Whole, "kind " + k.Name, "rate"}, {limits.RatePerShardKey, c.Key, "kind " + k.Name + " for its shard key " + key, "rate-per-shard-key"}} {
		if rate.rate.Count == 0 {
			continue
		}
		if n, until := rate.rate.allows(c.Now, rate.lane.Next, limits.Burst); n == 0 && until > wait {
			wait = until
			held.Until = c.Now.Add(until)
			held.Text = fmt.Sprintf("It is ready, but the rate of %s is %s; the next one may begin at %s.", rate.of, rate.rate, held.Until.Local().Format("2006-01-02 15:04:05.000"))
			held.Next = fmt.Sprintf("ledgerd kind set %s --%s RATE", k.Name, rate.flag)
		}
	}
	if wait > 0 {
		return held
	}
	return w
}
