package settings

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// durationForm is what ParseDuration accepts.
var durationForm = regexp.MustCompile(DurationPattern)

// DurationPattern is the form of durations as a schema says it.
const DurationPattern = `^[+-]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d|w))+$`

var longUnits = regexp.MustCompile(`([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([dw])`)

// ParseDuration reads what time.ParseDuration reads, and days and weeks of 24 and 168 hours:
// "90s", "1h30m", "7d", "2w".
func ParseDuration(text string) (time.Duration, error) {
	if !durationForm.MatchString(text) {
		return 0, fmt.Errorf("%q is not a duration such as 30s, 5m or 7d", text)
	}
	hours := longUnits.ReplaceAllStringFunc(text, func(part string) string {
		n, err := strconv.ParseFloat(part[:len(part)-1], 64)
		if err != nil {
			return part // ParseDuration below says what is wrong
		}
		if strings.HasSuffix(part, "w") {
			n *= 7
		}
		return strconv.FormatFloat(n*24, 'f', -1, 64) + "h"
	})
	d, err := time.ParseDuration(hours)
	if err != nil {
		return 0, fmt.Errorf("%q is too long: at most %v", text, time.Duration(math.MaxInt64).Round(time.Hour))
	}
	return d, nil
}

// Suggest gives the known word that is closest to word, "" if none is close: at most a third
// of its letters differ, or it begins with word. The distance is Levenshtein's.
func Suggest(word string, known []string) string {
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if len(word) >= 3 && strings.HasPrefix(k, word) {
			d = min(d, 1)
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to be put in, left out or replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
