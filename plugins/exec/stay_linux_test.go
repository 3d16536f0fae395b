package exec

import (
	"testing"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// A process that ends after an answer, for example after each hundredth, costs no item an attempt, although the next
// item may have been sent to it already.
func TestProcessEndsAfterAnAnswer(t *testing.T) {
	t.Parallel()
	h, file := staying(t, `echo "{\"id\":$id}"; exit 3`)
	for range 30 {
		if r := h.Run(sdktest.Task{Key: "k"}); r.Outcome != "done" {
			t.Fatalf("%+v", r)
		}
	}
	pids(t, file, 30)
}
