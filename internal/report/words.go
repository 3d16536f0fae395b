package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// OrEmpty is a list that JSON shows as [] when there is nothing in it.
func OrEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// OneLine is JSON on one line, as far as a person reads on.
func OneLine(raw Bytes) string {
	const most = 2000
	text, err := raw.MarshalJSON()
	var compact bytes.Buffer
	if err != nil || len(raw) == 0 || json.Compact(&compact, text) != nil {
		return ""
	}
	if s := compact.String(); len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(compact.String()[:most], "") + "… (-o json has all of it)"
}

// Prefixed is s behind the prefix, or "" if s is "".
func Prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// Plural is a number with its noun: "1 item", "2,000 items".
func Plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// Seconds is a duration for people: "0.2 s", from a minute on "3m20s".
func Seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// InSeconds returns a duration in seconds, rounded to milliseconds.
func InSeconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}
