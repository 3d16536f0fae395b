//go:build unix

package pluginproc

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/time/rate"
)

// Lines that are dropped at the end of the output are reported, too.
func TestDroppedAtEnd(t *testing.T) {
	var lines []string
	o := newOutput("stderr", func(_, line string) { lines = append(lines, line) }, nil)
	o.limiter = rate.NewLimiter(0, 1)
	o.copyFrom(strings.NewReader("a\nb\nc"))
	if want := []string{"a", "… 2 lines were not taken: more than 1000 a second"}; !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
}
