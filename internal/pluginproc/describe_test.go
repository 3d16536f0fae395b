//go:build unix

package pluginproc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// A description that is too large is refused, and the error names what is too large.
func TestCheckDescription(t *testing.T) {
	fields := make([]string, 10_000)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"f%d":{"type":"string"}`, i)
	}
	for want, r := range map[string]*wire.DescribeResponse{
		"documentation has": {Doc: strings.Repeat("x", MaxDoc+1)},
		"10000 fields":      {InputSchema: []byte(`{"properties":{` + strings.Join(fields, ",") + `}}`)},
		"a field whose":     {ConfigSchema: []byte(`{"properties":{"` + strings.Repeat("n", MaxField+1) + `":{}}}`)},
		"output schema has": {OutputSchema: make([]byte, MaxSchema+1)},
		"emits has":         {Emits: make([]string, MaxNames+1)},
	} {
		if err := CheckDescription(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	must.OK(t, CheckDescription(&wire.DescribeResponse{Name: "a",
		InputSchema: []byte(`{"properties":{"a":{}}}`)}))
}

// emitting is a plugin of which each config permits to emit the kind that it names.
type emitting struct{ wire.PluginClient }

func (emitting) Configure(_ context.Context, r *wire.ConfigureRequest, _ ...grpc.CallOption) (*wire.ConfigureResponse,
	error) {
	if len(r.Config) == 0 {
		return nil, errors.New("failed")
	}
	return &wire.ConfigureResponse{Emits: []string{string(r.Config)}}, nil
}

// Emits returns the kinds of the config in force: neither a check of another config nor a failed call changes them.
func TestEmits(t *testing.T) {
	p := &Proc{rpc: emitting{}}
	for _, r := range []*wire.ConfigureRequest{{Config: []byte("a")}, {Config: []byte("b"), ValidateOnly: true}, {}} {
		_, _ = p.Configure(t.Context(), r)
		if got := p.Emits(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("after %v: %q", r, got)
		}
	}
}
