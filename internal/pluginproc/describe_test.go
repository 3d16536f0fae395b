//go:build unix

package pluginproc

import (
	"fmt"
	"strings"
	"testing"

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
