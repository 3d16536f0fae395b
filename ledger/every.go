package ledger

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones travel with the program: every daemon must know the same ones
)

// Every is a parsed recurrence: it cuts time into periods. A recurring item is completed at
// most once per period and is due at the start of the next one; periods that passed while
// nobody worked are not made up for.
//
// Hours, days and weeks are those of the zone's clock, weeks from Monday. Durations count from
// 1970-01-01 UTC. Cron fields are minute, hour, day of month, month, day of week, with lists,
// ranges, steps and English names; when both days are restricted, either may match (POSIX
// crontab). A local time that a clock change skips fires when the change happens; one that
// it repeats fires the first time only.
type Every struct {
	spec string
	zone *time.Location
	step time.Duration // a duration, when > 0
	cron *cron
}

// MinEvery is the shortest period.
const MinEvery = time.Minute

// ParseEvery parses "hour", "day", "week", a duration ("36h", "7d", "2w") or five cron fields.
func ParseEvery(spec, zone string) (Every, error) {
	if e, known := parsedEvery.get(spec, zone); known {
		return e, nil
	}
	e, err := parseEvery(spec, zone)
	if err == nil {
		parsedEvery.put(spec, zone, e)
	}
	return e, err
}

// parsedEvery remembers recurrences, because the end of every attempt of a recurring item needs
// one, inside a transaction.
var parsedEvery everyCache

type everyCache struct {
	mu   sync.Mutex
	byID map[[2]string]Every
}

func (c *everyCache) get(spec, zone string) (Every, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, known := c.byID[[2]string{spec, zone}]
	return e, known
}

func (c *everyCache) put(spec, zone string, e Every) {
	const most = 1000 // then it begins anew
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil || len(c.byID) >= most {
		c.byID = map[[2]string]Every{}
	}
	c.byID[[2]string{spec, zone}] = e
}

func parseEvery(spec, zone string) (Every, error) {
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return Every{}, &InvalidError{Field: "zone", Reason: fmt.Sprintf("%q is no IANA time zone, such as Europe/Berlin", zone)}
	}
	e := Every{spec: strings.Join(strings.Fields(spec), " "), zone: loc}
	switch e.spec {
	case "hour", "day", "week":
		return e, nil
	}
	if strings.Count(e.spec, " ") == 4 {
		if e.cron, err = parseCron(e.spec); err != nil {
			return Every{}, &InvalidError{Field: "every", Reason: err.Error()}
		}
		if e.cronAfter(time.Unix(0, 0)).IsZero() {
			return Every{}, &InvalidError{Field: "every", Reason: fmt.Sprintf("%q never comes", spec)}
		}
		return e, nil
	}
	d, err := ParseDuration(e.spec)
	if err != nil {
		return Every{}, &InvalidError{Field: "every", Reason: fmt.Sprintf("%q is not hour, day, week, a duration (36h, 7d) or five cron fields", spec)}
	}
	if d < MinEvery {
		return Every{}, &InvalidError{Field: "every", Reason: fmt.Sprintf("%s is shorter than %s", d, MinEvery)}
	}
	e.step = d
	return e, nil
}

const (
	maxYears = 100
	longest  = maxYears * 366 * 24 * time.Hour
)

// ParseDuration is time.ParseDuration with days ("7d") and weeks ("2w") as well.
func ParseDuration(s string) (time.Duration, error) {
	var total time.Duration
	rest := s
	for rest != "" {
		i := strings.IndexAny(rest, "dw")
		if i < 0 {
			break
		}
		n, err := strconv.ParseUint(rest[:i], 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration, such as 90s, 36h, 7d", s)
		}
		if rest[i] == 'w' {
			n *= 7
		}
		if n > 366*maxYears || total+time.Duration(n)*24*time.Hour > longest {
			return 0, fmt.Errorf("%q is longer than %d years", s, maxYears)
		}
		total += time.Duration(n) * 24 * time.Hour
		rest = rest[i+1:]
	}
	if rest == "" && s != "" {
		return total, nil
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d < 0 || d > longest {
		return 0, fmt.Errorf("%q is not a duration, such as 90s, 36h, 7d", s)
	}
	return total + d, nil
}

// Start is the start of the period that contains t.
func (e Every) Start(t time.Time) time.Time {
	l := t.In(e.zone)
	switch {
	case e.cron != nil:
		return e.cronBefore(t).UTC()
	case e.step > 0:
		// Unix time, not Truncate: that counts from year 1.
		s := int64(e.step / time.Microsecond)
		us := t.UnixMicro()
		return time.UnixMicro(us - (us%s+s)%s).UTC()
	case e.spec == "hour":
		// A clock change that is not of a whole hour cuts an hour short.
		start := fullHour(l)
		if change, _ := l.ZoneBounds(); start.Before(change) {
			start = change
		}
		return start.UTC()
	case e.spec == "week":
		return startOfDay(l, -(int(l.Weekday())+6)%7).UTC()
	}
	return startOfDay(l, 0).UTC()
}

// startOfDay is the first instant of the day that is days after t's, in t's zone.
func startOfDay(t time.Time, days int) time.Time {
	return instant(t.Year(), t.Month(), t.Day()+days, 0, 0, t.Location())
}

// fullHour is t with its local minutes taken off.
func fullHour(t time.Time) time.Time {
	return t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond()))
}

// after is the start of the period after the one that starts at p.
func (e Every) after(p time.Time) time.Time {
	l := p.In(e.zone)
	switch {
	case e.cron != nil:
		return e.cronAfter(p).UTC()
	case e.step > 0:
		return p.Add(e.step)
	case e.spec == "hour":
		next := fullHour(l).Add(time.Hour)
		if _, change := l.ZoneBounds(); !change.IsZero() && change.Before(next) {
			next = change
		}
		return next.UTC()
	case e.spec == "week":
		return startOfDay(l, 7).UTC()
	}
	return startOfDay(l, 1).UTC()
}

// Next is when an item is due whose period was ended, at a moment of the database's clock: the
// start of the next period, or of the present one if that has begun already.
func (e Every) Next(period, now time.Time) time.Time {
	next := e.after(period)
	if current := e.Start(now); current.After(next) {
		return current
	}
	return next
}

// Name is the period that starts at p as people read it.
func (e Every) Name(p time.Time) string {
	l := p.In(e.zone)
	switch e.spec {
	case "hour":
		if p.UTC().Minute() == 0 { // it is not where the zone's hours are shifted
			return p.UTC().Format("2006-01-02T15Z")
		}
	case "day":
		return l.Format("2006-01-02")
	case "week":
		y, w := l.ISOWeek()
		return fmt.Sprintf("%d-W%02d", y, w)
	}
	if p.Second() != 0 {
		return p.UTC().Format("2006-01-02T15:04:05Z")
	}
	return p.UTC().Format("2006-01-02T15:04Z")
}

// roundName names the opening of an item that is not recurring.
func roundName(epoch int64) string { return strconv.FormatInt(epoch, 10) }

// instant is the moment at which the clocks of loc show the given time: the first of two, or,
// if they never do, the moment of the change that skips it.
func instant(year int, month time.Month, day, hour, minute int, loc *time.Location) time.Time {
	t := time.Date(year, month, day, hour, minute, 0, 0, loc)
	want := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	wall := func(t time.Time) time.Time {
		_, off := t.Zone()
		return t.UTC().Add(time.Duration(off) * time.Second)
	}
	start, end := t.ZoneBounds()
	if d := wall(t).Sub(want); d > 0 { // skipped, and t lies behind the change
		return start
	} else if d < 0 {
		return end
	}
	if !start.IsZero() {
		_, now := t.Zone()
		_, before := start.Add(-time.Nanosecond).Zone()
		if first := t.Add(time.Duration(now-before) * time.Second); first.Before(start) && wall(first).Equal(want) {
			return first
		}
	}
	return t
}

// cron is a set of local times: bit i of a field stands for value i.
type cron struct {
	minute, hour, dom, month, dow uint64
	anyDOM, anyDOW                bool
}

var cronFields = []struct {
	name     string
	min, max int
	names    []string
}{
	{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day of month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

func parseCron(spec string) (*cron, error) {
	fields := strings.Fields(spec)
	var set [5]uint64
	for i, f := range fields {
		for _, part := range strings.Split(f, ",") {
			b, err := cronRange(part, i)
			if err != nil {
				return nil, fmt.Errorf("%s %q: %w", cronFields[i].name, f, err)
			}
			set[i] |= b
		}
	}
	if set[4]&(1<<7) != 0 { // Sunday has two numbers
		set[4] = set[4]&^(1<<7) | 1
	}
	return &cron{minute: set[0], hour: set[1], dom: set[2], month: set[3], dow: set[4],
		anyDOM: strings.HasPrefix(fields[2], "*"), anyDOW: strings.HasPrefix(fields[4], "*")}, nil
}

// cronRange parses "*", "5", "1-5", each with an optional "/step".
func cronRange(part string, field int) (uint64, error) {
	f := cronFields[field]
	body, stepText, stepped := strings.Cut(part, "/")
	step := 1
	if stepped {
		n, err := strconv.Atoi(stepText)
		if err != nil || n < 1 || n > f.max {
			return 0, fmt.Errorf("step %q is not 1 … %d", stepText, f.max)
		}
		step = n
	}
	lo, hi := f.min, f.max
	if body != "*" {
		a, b, isRange := strings.Cut(body, "-")
		var err error
		if lo, err = cronValue(a, field); err != nil {
			return 0, err
		}
		switch {
		case isRange:
			if hi, err = cronValue(b, field); err != nil {
				return 0, err
			}
		case !stepped:
			hi = lo
		}
		if hi < lo {
			return 0, fmt.Errorf("%d-%d runs backwards", lo, hi)
		}
	} else if field == 4 {
		hi = 6
	}
	var set uint64
	for v := lo; v <= hi; v += step {
		set |= 1 << v
	}
	return set, nil
}

func cronValue(s string, field int) (int, error) {
	f := cronFields[field]
	if i := slices.Index(f.names, strings.ToLower(s)); i >= 0 {
		return f.min + i, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < f.min || n > f.max || strings.HasPrefix(s, "+") {
		return 0, fmt.Errorf("%q is not %d … %d", s, f.min, f.max)
	}
	return n, nil
}

// day says whether a local date matches.
func (c *cron) day(t time.Time) bool {
	if c.month&(1<<t.Month()) == 0 {
		return false
	}
	dom, dow := c.dom&(1<<t.Day()) != 0, c.dow&(1<<t.Weekday()) != 0
	if c.anyDOM || c.anyDOW {
		return dom && dow
	}
	return dom || dow
}

// cronYears bounds the search: 29 February may be eight years away, at the turn of a century.
const cronYears = 9

// fires are the moments of one local date, in order.
func (e Every) fires(year int, month time.Month, day int) []time.Time {
	var all []time.Time
	for h := e.cron.hour; h != 0; h &= h - 1 {
		for m := e.cron.minute; m != 0; m &= m - 1 {
			all = append(all, instant(year, month, day, bits.TrailingZeros64(h), bits.TrailingZeros64(m), e.zone))
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// cronAfter is the first moment after t, zero if none comes.
func (e Every) cronAfter(t time.Time) time.Time {
	l := t.In(e.zone)
	// Noon of a date in UTC stands for the date: no zone skips or repeats it.
	for d, n := time.Date(l.Year(), l.Month(), l.Day(), 12, 0, 0, 0, time.UTC), 0; n < cronYears*366; d, n = d.AddDate(0, 0, 1), n+1 {
		if !e.cron.day(d) {
			continue
		}
		for _, f := range e.fires(d.Year(), d.Month(), d.Day()) {
			if f.After(t) {
				return f
			}
		}
	}
	return time.Time{}
}

// cronBefore is the last moment not after t.
func (e Every) cronBefore(t time.Time) time.Time {
	l := t.In(e.zone)
	for d, n := time.Date(l.Year(), l.Month(), l.Day(), 12, 0, 0, 0, time.UTC), 0; n < cronYears*366; d, n = d.AddDate(0, 0, -1), n+1 {
		if !e.cron.day(d) {
			continue
		}
		for _, f := range slices.Backward(e.fires(d.Year(), d.Month(), d.Day())) {
			if !f.After(t) {
				return f
			}
		}
	}
	return time.Time{}
}
