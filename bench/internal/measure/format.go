package measure

import (
	"fmt"
	"strconv"
	"strings"
)

// Format writes a figure with its unit: rates to three digits, times with one or two decimals.
func Format(v float64, unit string) string {
	switch unit {
	case "/s":
		return thousands(round3(v)) + "/s"
	case "ms":
		if v < 10 {
			return fmt.Sprintf("%.2f ms", v)
		}
		return thousands(int64(v+0.5)) + " ms"
	case "µs":
		return fmt.Sprintf("%.1f µs", v)
	case "%":
		return fmt.Sprintf("%.1f %%", v)
	case "x":
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}

// round3 rounds to three significant digits: further digits of a rate are noise.
func round3(v float64) int64 {
	step := int64(1)
	for int64(v)/step >= 1000 {
		step *= 10
	}
	return (int64(v) + step/2) / step * step
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	var parts []string
	for len(s) > 3 {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return strings.Join(append([]string{s}, parts...), ",")
}
