package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// durationForm is what ParseDuration accepts.
var durationForm = lazyregexp.New(DurationPattern)

// DurationPattern is the form of durations in a schema.
const DurationPattern = `^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h|d|w))+)$`

var longUnits = lazyregexp.New(`([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([dw])`)

// ParseDuration reads what time.ParseDuration reads, and days and weeks of 24 and 168 hours:
// "90s", "1h30m", "7d", "2w".
func ParseDuration(text string) (time.Duration, error) {
	if !durationForm().MatchString(text) {
		return 0, fmt.Errorf("%q is not a duration such as 30s, 5m or 7d", text)
	}
	short := longUnits().ReplaceAllStringFunc(text, func(part string) string {
		hours := time.Duration(24)
		if strings.HasSuffix(part, "w") {
			hours = 7 * 24
		}
		d, err := time.ParseDuration(part[:len(part)-1] + "h") // as an integer: a float of 0.7 days is no whole minute
		if err != nil || d > math.MaxInt64/hours {
			return part // ParseDuration below fails for it
		}
		return (hours * d).String()
	})
	d, err := time.ParseDuration(short)
	if err != nil {
		return 0, fmt.Errorf("%q is too long: at most %v", text, time.Duration(math.MaxInt64).Round(time.Hour))
	}
	return d, nil
}

// FormatDuration writes a duration as people do: "1m", not "1m0s", and "30d", not "720h0m0s".
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// longestWord is the most bytes of a word that Suggest compares; the names of fields are shorter.
const longestWord = 100

// Suggest gives the known word that is closest to word, "" if none is close: at most a third of its
// letters are wrong, or it begins with word. Letters put in, left out, replaced or swapped with the
// next one count one each (optimal string alignment).
func Suggest(word string, known []string) string {
	best, least := "", max(1, len(word)/3)+1
	if len(word) > longestWord {
		return ""
	}
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if len(word) >= 3 && strings.HasPrefix(k, word) {
			d = min(d, 1)
		}
		if d < least && d < len(k) && word != "" {
			best, least = k, d
		}
	}
	return best
}

func distance(a, b string) int {
	before := make([]int, len(b)+1) // two rows up
	above := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			wrong := 0
			if a[i-1] != b[j-1] {
				wrong = 1
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
