package recurrence

import (
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestEvery(t *testing.T) {
	for _, c := range []struct {
		spec, zone, at string
		start, next    string // of the period that contains at, and of the one after
		name           string
	}{
		{"hour", "", "2026-11-20T10:59:59Z", "2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z", "2026-11-20T10Z"},
		{"hour", "Asia/Kathmandu", "2026-11-20T10:20:00Z", "2026-11-20T10:15:00Z", "2026-11-20T11:15:00Z",
			"2026-11-20T10:15Z"},
		{"day", "", "2026-11-20T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z", "2026-11-20"},
		{"day", "Europe/Berlin", "2026-11-20T23:30:00Z", "2026-11-20T23:00:00Z", "2026-11-21T23:00:00Z", "2026-11-21"},
		// 23 hours
		{"day", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-29"},
		// 25 hours
		{"day", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-25"},
		// has no midnight
		{"day", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "2018-11-04"},
		// begins at one o'clock
		{"day", "Asia/Beirut", "2026-03-29T12:00:00Z", "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z", "2026-03-29"},
		// the 30th was left out
		{"day", "Pacific/Apia", "2011-12-30T09:59:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-29"},
		{"day", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", "2011-12-31"},
		{"week", "", "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z", "2026-W47"},
		{"week", "", "2026-11-23T00:00:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z", "2026-W48"},
		{"36h", "", "1970-01-03T00:00:00Z", "1970-01-02T12:00:00Z", "1970-01-04T00:00:00Z", "1970-01-02T12:00Z"},
		{"7d", "", "1970-01-07T23:59:59Z", "1970-01-01T00:00:00Z", "1970-01-08T00:00:00Z", "1970-01-01T00:00Z"},
		{"90s", "", "1970-01-01T00:02:00Z", "1970-01-01T00:01:30Z", "1970-01-01T00:03:00Z", "1970-01-01T00:01:30Z"},
		{"0 1 * * *", "", "2026-11-20T00:59:59Z", "2026-11-19T01:00:00Z", "2026-11-20T01:00:00Z", "2026-11-19T01:00Z"},
		{"0 1 * * *", "", "2026-11-20T01:00:00Z", "2026-11-20T01:00:00Z", "2026-11-21T01:00:00Z", "2026-11-20T01:00Z"},
		{"*/20 9-17 * * mon-fri", "", "2026-11-21T12:00:00Z", "2026-11-20T17:40:00Z", "2026-11-23T09:00:00Z",
			"2026-11-20T17:40Z"},
		// either day
		{"0 0 13 * fri", "", "2026-11-14T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-13T00:00Z"},
		// both: * is there
		{"0 0 */2 * fri", "", "2026-11-14T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-27T00:00:00Z", "2026-11-13T00:00Z"},
		{"0 0 29 2 *", "", "2026-11-20T00:00:00Z", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2024-02-29T00:00Z"},
		{"0 0 29 2 *", "", "2097-01-01T00:00:00Z", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z", "2096-02-29T00:00Z"},
		// a Sunday
		{"0 0 29 2 */7", "", "2026-11-20T00:00:00Z", "2004-02-29T00:00:00Z", "2032-02-29T00:00:00Z", "2004-02-29T00:00Z"},
		// skipped: at the change
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z",
			"2026-03-29T01:00Z"},
		// twice: the first
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z",
			"2026-10-25T00:30Z"},
		{"0 0 * * 7", "", "2026-11-20T00:00:00Z", "2026-11-15T00:00:00Z", "2026-11-22T00:00:00Z", "2026-11-15T00:00Z"},
		{"0 0 1 jan,JUL *", "", "2026-11-20T00:00:00Z", "2026-07-01T00:00:00Z", "2027-01-01T00:00:00Z", "2026-07-01T00:00Z"},
	} {
		e, err := Parse(c.spec, c.zone)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		start := e.Start(at(c.at))
		if !start.Equal(at(c.start)) || start.Location() != time.UTC {
			t.Errorf("%s %s: the period of %s starts at %v, want %s", c.spec, c.zone, c.at, start, c.start)
		}
		if next := e.Next(start, at(c.at)); !next.Equal(at(c.next)) {
			t.Errorf("%s %s: after %v comes %v, want %s", c.spec, c.zone, start, next, c.next)
		}
		if name := e.Name(start); name != c.name {
			t.Errorf("%s %s: %v is named %s, want %s", c.spec, c.zone, start, name, c.name)
		}
	}
}

// If clocks are set back, cron fields with an hour of * match in both of the repeated hours. A time of day matches
// once.
func TestClocksPutBack(t *testing.T) {
	for _, c := range []struct {
		spec, zone, from string
		want             []string
	}{
		{"*/30 * * * *", "Europe/London", "2025-10-26T00:00:00Z",
			[]string{"2025-10-26T00:30:00Z", "2025-10-26T01:00:00Z", "2025-10-26T01:30:00Z", "2025-10-26T02:00:00Z"}},
		{"0 * * * *", "Europe/London", "2025-10-26T00:00:00Z", []string{"2025-10-26T01:00:00Z", "2025-10-26T02:00:00Z"}},
		{"0 */2 * * *", "Europe/Berlin", "2025-10-25T22:00:00Z",
			[]string{"2025-10-26T00:00:00Z", "2025-10-26T01:00:00Z", "2025-10-26T03:00:00Z"}},
		{"30 2 * * *", "Europe/Berlin", "2025-10-26T00:00:00Z", []string{"2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"}},
		{"*/20 * * * *", "Australia/Lord_Howe", "2026-04-04T14:40:00Z", // half an hour is put back at 15:00 UTC
			[]string{"2026-04-04T15:10:00Z", "2026-04-04T15:30:00Z"}},
	} {
		e, err := Parse(c.spec, c.zone)
		must.OK(t, err)
		from, err := time.Parse(time.RFC3339, c.from)
		must.OK(t, err)
		for _, want := range c.want {
			next := e.after(from)
			if got := next.Format(time.RFC3339); got != want {
				t.Errorf("%s %s: after %v comes %s, want %s", c.spec, c.zone, from, got, want)
			}
			if start := e.Start(next); !start.Equal(next) {
				t.Errorf("%s %s: the period of %v starts at %v", c.spec, c.zone, next, start)
			}
			from = next
		}
	}
}

func TestEveryRefuses(t *testing.T) {
	for _, spec := range []string{"", "monthly", "59s", "-1h", "0 0 31 2 *", "0 0 30 2 mon-", "60 * * * *", "* 24 * * *",
		"* * 0 * *", "* * 32 * *", "* * * 13 *",
		"* * * * 8", "*/0 * * * *", "*/60 * * * *", "5-1 * * * *", "* * * * * *", "TZ=UTC * * * *", "+1 * * * *",
		"1--100000000 * * * *", ", * * * *", "@daily", "1d1", "d"} {
		if e, err := Parse(spec, ""); err == nil {
			t.Errorf("%q was taken as %+v", spec, e)
		}
	}
	for _, zone := range []string{"Mars/Olympus", "Local", "../etc/passwd"} {
		if _, err := Parse("day", zone); err == nil {
			t.Errorf("zone %q was taken", zone)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{"90s": 90 * time.Second, "7d": 7 * 24 * time.Hour,
		"2w": 14 * 24 * time.Hour, "1d12h": 36 * time.Hour, "1w1d": 8 * 24 * time.Hour, "0": 0, "1.5h": 90 * time.Minute} {
		if d, err := ParseDuration(s); err != nil || d != want {
			t.Errorf("%s: %v, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "d", "-1d", "1.5d", "12", "1y", "99999999d", "-5m", "30501w", "36600d36600d",
		"1000000h"} {
		if d, err := ParseDuration(s); err == nil {
			t.Errorf("%q was taken as %v", s, d)
		}
	}
}

// FuzzEvery compares cron fields with an oracle that looks at every minute, and checks that the periods of any
// recurrence follow each other without gaps.
func FuzzEvery(f *testing.F) {
	for _, s := range []string{"*/7 * * * *", "0 1 * * *", "1-5/2 3,4 * * 1", "0 0 13 * 5", "0 0 */2 * fri", "hour", "day",
		"week", "90s", "7d"} {
		f.Add(s, "Europe/Berlin", int64(1_774_742_400))
		f.Add(s, "Australia/Lord_Howe", int64(1_791_043_200))
	}
	f.Fuzz(func(t *testing.T, spec, zone string, unix int64) {
		e, err := Parse(spec, zone)
		if err != nil || unix < 0 || unix > 4e9 {
			return
		}
		now := time.Unix(unix, 0)
		start := e.Start(now)
		next := e.after(start)
		if start.After(now) || !next.After(now) || !e.Start(start).Equal(start) || !e.Start(next).Equal(next) ||
			!e.Start(next.Add(-time.Nanosecond)).Equal(start) {
			t.Fatalf("%s %s: %v lies in %v … %v", spec, zone, now, start, next)
		}
		if e.cron != nil && e.zone == time.UTC {
			oracle(t, e, now)
		}
	})
}

// oracle walks minute by minute from now, at most a week, to the next match.
func oracle(t *testing.T, e Rule, now time.Time) {
	m := now.Truncate(time.Minute).Add(time.Minute).UTC()
	for range 7 * 24 * 60 {
		c := e.cron
		if c.minute&(1<<m.Minute()) != 0 && c.hour&(1<<m.Hour()) != 0 && c.day(m) {
			if got := e.cronAfter(now); !got.Equal(m) {
				t.Fatalf("%s: after %v comes %v, want %v", e.spec, now, got, m)
			}
			return
		}
		m = m.Add(time.Minute)
	}
	if got := e.cronAfter(now); got.Before(m) {
		t.Fatalf("%s: after %v comes %v, want none before %v", e.spec, now, got, m)
	}
}

func TestEveryProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := Parse(rapid.SampledFrom([]string{"hour", "day", "week", "61s", "*/7 * * * *", "0 */5 * * *",
			"30 2 * * *", "*/20 */3 * * *", "0 0 1 * *", "15 4 * * 1"}).Draw(t, "spec"),
			rapid.SampledFrom([]string{"", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Asia/Tehran",
				"Pacific/Apia"}).Draw(t, "zone"))
		must.OK(t, err)
		now := time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "µs"))
		start := e.Start(now)
		next := e.after(start)
		if start.After(now) || !next.After(now) || !e.Start(start).Equal(start) || !e.Start(next).Equal(next) ||
			!e.Start(next.Add(-time.Nanosecond)).Equal(start) {
			t.Fatalf("%s %s: %v lies in %v … %v", e.spec, e.zone, now, start, next)
		}
		if got := e.Next(start, now.Add(400*24*time.Hour)); got.After(now.Add(400 * 24 * time.Hour)) {
			t.Fatalf("after a long pause it is due at %v, not at once", got)
		}
	})
}

// TestCronDays: the moments that are found without a list of the day are those of the list, also near clock changes.
func TestCronDays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, err := Parse(rapid.SampledFrom([]string{"* * * * *", "*/7 * * * *", "0 */5 * * *", "30 2 * * *", "0 0 * * *",
			"59 23 * * *", "*/20 9-17 * * mon-fri", "15,45 0-2,22-23 * * *"}).Draw(t, "spec"),
			rapid.SampledFrom([]string{"", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Beirut", "America/Havana",
				"America/Sao_Paulo", "Pacific/Apia"}).Draw(t, "zone"))
		must.OK(t, err)
		at := time.UnixMicro(rapid.Int64Range(3e14, 4e15).Draw(t, "µs"))
		if _, change := at.In(e.zone).ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near") {
			at = change.Add(time.Duration(rapid.IntRange(-4*24*60, 4*24*60).Draw(t, "minutes")) * time.Minute)
		}
		var all []time.Time
		y, m, today := at.In(e.zone).Date()
		for day := today - 4; day <= today+4; day++ {
			if d := time.Date(y, m, day, 12, 0, 0, 0, time.UTC); e.cron.day(d) { // no zone skips it
				all = append(all, e.fires(d.Year(), d.Month(), d.Day())...)
			}
		}
		slices.SortFunc(all, time.Time.Compare)
		next := slices.IndexFunc(all, at.Before)
		if before, after := e.cronBefore(at), e.cronAfter(at); !before.Equal(all[next-1]) || !after.Equal(all[next]) {
			t.Fatalf("%s %s: %v lies in %v … %v, want %v … %v", e.spec, e.zone, at, before, after, all[next-1], all[next])
		}
	})
}

// The write transaction of each recurring item that ends uses a rule. So a rule lists the moments of a day only near a
// clock change.
func TestCronListsNoDay(t *testing.T) {
	e, err := Parse("* * * * *", "Europe/Berlin")
	must.OK(t, err)
	now := at("2026-11-20T10:00:30Z")
	if n := testing.AllocsPerRun(10, func() { e.after(e.Start(now)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCronSets(t *testing.T) {
	c, err := parseCron("*/15 0-23/6 1,15 * 5-7")
	must.OK(t, err)
	if bits.OnesCount64(c.minute) != 4 || bits.OnesCount64(c.hour) != 4 || c.dom != 1<<1|1<<15 || c.dow != 1<<5|1<<6|1 {
		t.Errorf("%+v", c)
	}
}
