package recurrence

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// cron is a set of local times: bit i of a field stands for value i. dom is the day of the month, dow of the week.
type cron struct {
	minute, hour, dom, month, dow uint64
	anyDOM, anyDOW                bool
	anyHour                       bool // periods start in both hours, if a clock change repeats an hour
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
		for part := range strings.SplitSeq(f, ",") {
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
		anyHour: strings.HasPrefix(fields[1], "*"), anyDOM: strings.HasPrefix(fields[2], "*"),
		anyDOW: strings.HasPrefix(fields[4], "*")}, nil
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

// cronValue parses a number or a name.
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

// day reports whether a local date matches.
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

// cronYears bounds the search: a 29 February that is a Sunday may be 40 years away, at the turn of a century.
const cronYears = 41

// minuteFrom returns the first minute of a day that matches, from minute n on; some is false if none does.
func (c *cron) minuteFrom(n int) (minute int, some bool) {
	h := n / 60
	if m := c.minute >> (n % 60) << (n % 60); m != 0 && c.hour&(1<<h) != 0 {
		return h*60 + bits.TrailingZeros64(m), true
	}
	later := c.hour >> (h + 1) << (h + 1)
	return bits.TrailingZeros64(later)*60 + bits.TrailingZeros64(c.minute), later != 0
}

// minuteUpTo returns the last minute of a day that matches, up to minute n; some is false if none does.
func (c *cron) minuteUpTo(n int) (minute int, some bool) {
	h := n / 60
	if m := c.minute & (2<<(n%60) - 1); m != 0 && c.hour&(1<<h) != 0 {
		return h*60 + bits.Len64(m) - 1, true
	}
	earlier := c.hour & (1<<h - 1)
	return (bits.Len64(earlier)-1)*60 + bits.Len64(c.minute) - 1, earlier != 0
}

// plain returns the midnight of a date, and whether no clock change is near. Minute n of the day is then n minutes
// later.
func (e Rule) plain(d time.Time) (midnight time.Time, is bool) {
	const day = 24 * time.Hour
	midnight = time.Date(d.Year(), d.Month(), d.Day(), 0, 0, 0, 0, e.zone)
	from, to := midnight.ZoneBounds()
	return midnight, (from.IsZero() || midnight.Sub(from) >= day) && (to.IsZero() || to.Sub(midnight) >= 2*day)
}

// fires returns the matching moments of one local date, in order.
func (e Rule) fires(year int, month time.Month, day int) []time.Time {
	var all []time.Time
	for h := e.cron.hour; h != 0; h &= h - 1 {
		for m := e.cron.minute; m != 0; m &= m - 1 {
			first := instant(year, month, day, bits.TrailingZeros64(h), bits.TrailingZeros64(m), e.zone)
			all = append(all, first)
			if second, ok := again(first); ok && e.cron.anyHour {
				all = append(all, second)
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// again returns the second moment at which local clocks show the same time as at first, if they are set back between.
func again(first time.Time) (second time.Time, ok bool) {
	_, change := first.ZoneBounds()
	if change.IsZero() {
		return second, false
	}
	_, before := first.Zone()
	_, after := change.Zone()
	second = first.Add(time.Duration(before-after) * time.Second)
	return second, before > after && !second.Before(change)
}

// date returns the local date of t plus some days, as noon in UTC: no zone skips or repeats that.
func (e Rule) date(t time.Time, days int) time.Time {
	l := t.In(e.zone)
	return time.Date(l.Year(), l.Month(), l.Day()+days, 12, 0, 0, 0, time.UTC)
}

// cronAfter returns the first matching moment after t; zero if none comes.
func (e Rule) cronAfter(t time.Time) time.Time {
	for n := range cronYears * 366 {
		d := e.date(t, n)
		if !e.cron.day(d) {
			continue
		}
		if midnight, is := e.plain(d); is {
			from := 0
			if !t.Before(midnight) {
				from = int(t.Sub(midnight)/time.Minute) + 1
			}
			if m, some := e.cron.minuteFrom(from); some {
				return midnight.Add(time.Duration(m) * time.Minute)
			}
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

// cronBefore returns the last matching moment that is not after t.
func (e Rule) cronBefore(t time.Time) time.Time {
	for n := range cronYears * 366 {
		d := e.date(t, -n)
		if !e.cron.day(d) {
			continue
		}
		if midnight, is := e.plain(d); is {
			if m, some := e.cron.minuteUpTo(int(min(t.Sub(midnight)/time.Minute, 24*60-1))); some {
				return midnight.Add(time.Duration(m) * time.Minute)
			}
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
