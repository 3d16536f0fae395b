package ui

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// words are the functions of the templates.
var words = template.FuncMap{
	"count":      func(n any) string { return report.Count(whole(n)) },
	"counted":    func(n any, one, many string) string { return counted(whole(n), one, many) },
	"duration":   duration,
	"moment":     moment,
	"minute":     func(t report.Time) string { return time.Time(t).UTC().Format("2006-01-02 15:04") },
	"stamp":      func(t report.Time) string { return time.Time(t).UTC().Format(time.RFC3339) },
	"text":       text,
	"where":      func(terms string) string { return "/items?" + url.Values{"where": {terms}}.Encode() },
	"ofShardKey": func(key string) string { return term("shard_key:", key, `"`) },
	"ofAgent":    func(name string) string { return term("agent:", name, `",`) },
	"act": func(where, back string) string {
		return "/act?" + url.Values{"where": {where}, "back": {back}}.Encode()
	},
	"add":      func(a, b int64) int64 { return a + b },
	"percent":  func(share float64) string { return fmt.Sprintf("%.0f %%", share*100) },
	"rate":     rate,
	"join":     func(words []string) string { return strings.Join(words, ", ") },
	"key":      func(i int) string { return strconv.Itoa(i + 1) },
	"menu":     func(p page) bool { return p.Key != "" },
	"troubles": troubles,
	"offers":   func() []filter.Offer { return filter.Offers },
	"spelled":  spelled,
	"last":     last,
	"ms":       func(d float64) string { return fmt.Sprintf("%.0f ms", d) },
}

// term returns a term of a filter with a value, or "" if the value has a sign that the term cannot hold.
func term(name, value, signs string) string {
	if strings.ContainsAny(value, signs) {
		return ""
	}
	return name + `"` + value + `"`
}

// whole converts a number of a template.
func whole(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

// counted is a number with its noun.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return report.Count(n) + " " + many
}

// troubles are the counts of failures, crashes and losses in a round, in words, without those that are 0.
func troubles(failures, crashes, losses int) string {
	var all []string
	for _, t := range []struct {
		n         int
		one, many string
	}{{failures, "failure", "failures"}, {crashes, "crash", "crashes"}, {losses, "loss", "losses"}} {
		if t.n > 0 {
			all = append(all, counted(int64(t.n), t.one, t.many))
		}
	}
	return strings.Join(all, ", ")
}

// spelled is a range of time in words: "7 days" for 7d.
func spelled(short string) string {
	d, err := recurrence.ParseDuration(short)
	if err != nil {
		return short
	}
	for _, unit := range []struct {
		long      time.Duration
		one, many string
	}{{24 * time.Hour, "day", "days"}, {time.Hour, "hour", "hours"}, {time.Minute, "minute", "minutes"}} {
		if n := d / unit.long; n > 1 && d%unit.long == 0 || d == time.Hour && unit.long == d {
			return counted(int64(n), unit.one, unit.many)
		}
	}
	return short
}

// last returns a range of time as it reads after "in the last": "hour" for 1h.
func last(short string) string { return strings.TrimPrefix(spelled(short), "1 ") }

// duration writes a number of seconds in at most two units.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// moment is a time in UTC, "" for none.
func moment(t report.Time) string {
	if time.Time(t).IsZero() {
		return ""
	}
	return time.Time(t).UTC().Format("2006-01-02 15:04:05")
}

// maxText bounds how many bytes of a payload or a log a page shows.
const maxText = 16 << 10

// text shows bytes on a page: JSON indented unless it is nested deeply, other text as it is, and a note for bytes that
// are not UTF-8.
func text(b report.Bytes) string {
	b = report.Indented(b)
	if !utf8.Valid(b) {
		return fmt.Sprintf("%d bytes that are no text", len(b))
	}
	if len(b) > maxText {
		return strings.ToValidUTF8(string(b[:maxText]), "") + fmt.Sprintf("\n… of %d bytes", len(b))
	}
	return string(b)
}

// rate writes a number of items per second, in the unit that is easiest to read.
func rate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0"
	case perSecond < 1:
		return fmt.Sprintf("%.1f a minute", perSecond*60)
	case perSecond < 100:
		return fmt.Sprintf("%.1f a second", perSecond)
	}
	return report.Count(int64(math.Round(perSecond))) + " a second"
}
