package exec

import (
	"testing"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// One that ends after its answer, such as each hundredth, costs no item an attempt: it may have been sent the next one
// already.
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
