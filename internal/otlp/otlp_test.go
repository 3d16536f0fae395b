package otlp

import (
	"strings"
	"testing"
)

// Without a collector, or where it is switched off, there is no provider. A wrong address is an error, without its
// password.
func TestStart(t *testing.T) {
	for _, test := range []struct{ endpoint, name, value, want string }{
		{"", "OTEL_SDK_DISABLED", "", ""},
		{"http://127.0.0.1:1", "OTEL_SDK_DISABLED", "true", ""},
		{"http://127.0.0.1:1", "OTEL_TRACES_EXPORTER", "none", ""},
		{"localhost:4317", "OTEL_SDK_DISABLED", "", "is no URL such as"},
		{"grpc://u:hunter22@h:1", "OTEL_SDK_DISABLED", "", "is no URL such as"},
		{"http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only http/protobuf"},
	} {
		t.Run(test.endpoint+" "+test.value, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", test.endpoint)
			t.Setenv(test.name, test.value)
			got := ""
			p, err := Start(t.Context(), "1", nil)
			if err != nil {
				got = err.Error()
			}
			if p != nil || (got == "") != (test.want == "") || !strings.Contains(got, test.want) ||
				strings.Contains(got, "hunter22") {
				t.Errorf("%v, %s", p, got)
			}
		})
	}
}
