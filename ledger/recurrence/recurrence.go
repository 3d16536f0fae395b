// Package recurrence divides time into the periods of recurring items. A period is an hour, a day or a week of a
// time zone, a duration such as 36h, or the time from one match of five cron fields to the next.
package recurrence

import (
	"fmt"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // the program contains the zone data, so every daemon knows the same zones
)

// Rule is a parsed recurrence: it divides time into periods. A recurring item is completed at most once per period,
// and is due again when the next period starts. If several periods pass while no program works, the item is due once,
// in the current period. It is not due once more for each missed period.
//
// Hours, days and weeks begin by the local clock of the zone, and a week begins on Monday. Durations follow one another
// from 1970-01-01 UTC, in every zone.
//
// The cron fields are minute, hour, day of month, month and day of week. They may have lists, ranges, steps and English
// names. If no day field begins with *, a date matches where either of them matches; else both must match (as in POSIX
// crontab). A clock change may skip a local time that matches: the period then starts when the change happens. It may
// repeat one: the period then starts at the first of the two moments. If the hour is * or a step such as */2, periods
// start at both, so that a rhythm of minutes or hours does not pause.
type Rule struct {
	spec string
	zone *time.Location
	step time.Duration // a duration, when > 0
	cron *cron
}

// Min is the shortest period.
const Min = time.Minute

// Parse parses "hour", "day", "week", a duration ("36h", "7d", "2w") or five cron fields. zone is the name of an IANA
// time zone; "" is UTC. The error is an *Error.
func Parse(spec, zone string) (Rule, error) {
	key := [2]string{spec, zone}
	parsed.Lock()
	e, known := parsed.rules[key]
	parsed.Unlock()
	if known {
		return e, nil
	}
	e, err := parse(spec, zone)
	if err == nil {
		parsed.Lock()
		defer parsed.Unlock()
		if len(parsed.rules) >= maxParsed {
			clear(parsed.rules)
		}
		parsed.rules[key] = e
	}
	return e, err
}

// parsed keeps rules to use them again: each time an attempt of a recurring item ends, its rule is needed inside a
// transaction. With maxParsed rules it is emptied.
var parsed = struct {
	sync.Mutex
	rules map[[2]string]Rule // by the arguments of Parse
}{rules: map[[2]string]Rule{}}

const maxParsed = 1000

// Error reports that one argument of Parse is wrong.
type Error struct {
	Field  string // "every" if it is spec, or "zone"
	Reason string
}

func (e *Error) Error() string { return e.Field + ": " + e.Reason }

func parse(spec, zone string) (Rule, error) {
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return Rule{}, &Error{Field: "zone", Reason: fmt.Sprintf("%q is no IANA time zone, such as Europe/Berlin", zone)}
	}
	e := Rule{spec: strings.Join(strings.Fields(spec), " "), zone: loc}
	switch e.spec {
	case "hour", "day", "week":
		return e, nil
	}
	if strings.Count(e.spec, " ") == 4 {
		if e.cron, err = parseCron(e.spec); err != nil {
			return Rule{}, &Error{Field: "every", Reason: err.Error()}
		}
		if e.cronAfter(time.Unix(0, 0)).IsZero() {
			return Rule{}, &Error{Field: "every", Reason: fmt.Sprintf("%q never comes", spec)}
		}
		return e, nil
	}
	d, err := ParseDuration(e.spec)
	if period, ok := map[string]string{"hourly": "hour", "daily": "day", "weekly": "week"}[e.spec]; ok {
		return Rule{}, &Error{Field: "every", Reason: fmt.Sprintf("%q is written %s", spec, period)}
	}
	if err != nil {
		return Rule{}, &Error{Field: "every",
			Reason: fmt.Sprintf("%q is not hour, day, week, a duration (36h, 7d) or five cron fields", spec)}
	}
	if d < Min {
		return Rule{}, &Error{Field: "every", Reason: fmt.Sprintf("%s is shorter than %s", d, Min)}
	}
	e.step = d
	return e, nil
}

// Start returns the start of the period that contains t.
func (e Rule) Start(t time.Time) time.Time {
	l := t.In(e.zone)
	switch {
	case e.cron != nil:
		return e.cronBefore(t).UTC()
	case e.step > 0:
		// By Unix time: it counts from 1970. Truncate counts from the year 1.
		s := int64(e.step / time.Microsecond)
		us := t.UnixMicro()
		return time.UnixMicro(us - (us%s+s)%s).UTC()
	case e.spec == "hour":
		// A clock change that is not of a whole hour begins a period, so that an hour beside it is shorter.
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

// startOfDay returns the first moment of a day in the zone of t: of the day of t plus days.
func startOfDay(t time.Time, days int) time.Time {
	return instant(t.Year(), t.Month(), t.Day()+days, 0, 0, t.Location())
}

// fullHour returns t without its local minutes.
func fullHour(t time.Time) time.Time {
	return t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second -
		time.Duration(t.Nanosecond()))
}

// after returns the start of the period that follows the one that starts at p.
func (e Rule) after(p time.Time) time.Time {
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

// Next returns when a recurring item is due again after its round has ended. period is the start of the period of that
// round; now is a moment of the database's clock. The item is due at the start of the following period, or of the
// period that contains now if that one is later.
func (e Rule) Next(period, now time.Time) time.Time {
	next := e.after(period)
	if current := e.Start(now); current.After(next) {
		return current
	}
	return next
}

// Name names the period that starts at p, for people: 2026-11-20T10Z is an hour, 2026-11-20 a day, 2026-W47 a
// week. Every other period has its start in UTC as its name.
func (e Rule) Name(p time.Time) string {
	l := p.In(e.zone)
	switch e.spec {
	case "hour":
		if p.UTC().Minute() == 0 { // not so in zones whose offset has half or quarter hours
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

// instant returns the moment at which local clocks show a time. If they show it twice, that is the first moment. If a
// clock change skips the time, that is the moment of the change.
func instant(year int, month time.Month, day, hour, minute int, loc *time.Location) time.Time {
	t := time.Date(year, month, day, hour, minute, 0, 0, loc)
	want := time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	wall := func(t time.Time) time.Time {
		_, off := t.Zone()
		return t.UTC().Add(time.Duration(off) * time.Second)
	}
	start, end := t.ZoneBounds()
	if d := wall(t).Sub(want); d > 0 { // skipped, and t is after the change
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
