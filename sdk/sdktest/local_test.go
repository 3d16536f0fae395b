package sdktest

import (
	"context"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
)

// A function that does not look at its context does not keep the plugin from its end.
func TestStuckInProcess(t *testing.T) {
	begun, block := make(chan struct{}), make(chan struct{})
	defer close(block)
	h := New(t, sdk.New("stuck", "0.1.0", func(context.Context, *struct{}, sdk.Item[struct{}]) (string, error) {
		close(begun)
		<-block
		return "", nil
	}), Options{InProcess: true})
	it, err := h.item(Task{})
	must.OK(t, err)
	h.work.Add(&pluginproc.Task[*delivery]{Item: it})
	<-begun
	if left := h.plugin.Stop(t.Context(), 0); len(left) != 1 {
		t.Errorf("unfinished: %v", left)
	}
}
