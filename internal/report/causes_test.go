package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
)

// Causes of several kinds have a column of kinds, and causes with times have a first and a last time. A narrow terminal
// leaves out the last time.
func TestCausesOfKinds(t *testing.T) {
	var f Failures
	long, recent := time.Now().Add(-3*time.Hour-time.Minute), time.Now().Add(-5*time.Minute-time.Second)
	f.Add(1, "a", "http_503", "busy").Seen(long, long, "links", "")
	f.Add(2, "a", "http_503", "busy").Seen(recent, recent, "links", "")
	odd := f.Add(3, "b", "odd", "strange")
	odd.Seen(long.Add(-48*time.Hour), long.Add(-48*time.Hour), "files", "")
	odd.ForGood = 1
	for width, want := range map[int]string{
		0:  "2 × links http_503 busy a tried again since 3 h last 5 m\n1 × files odd strange b for good since 2 d last 2 d\n",
		40: "2 × links http_503 busy a tried again since 3 h\n1 × files odd strange b for good since 2 d\n",
	} {
		var out bytes.Buffer
		must.OK(t, (&Printer{Out: &out, Width: width}).Table(f.List(), func(key string) string { return key }))
		var got string
		for line := range strings.Lines(out.String()) {
			got += strings.Join(strings.Fields(line), " ") + "\n"
		}
		if got != want {
			t.Errorf("width %d:\n%swant:\n%s", width, got, want)
		}
	}
}
