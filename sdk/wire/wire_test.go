package wire_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// The page from which people write plugins in other languages has every call, outcome and reason, the
// cookie, and every field of what a plugin receives.
func TestPageForAnyLanguage(t *testing.T) {
	text, err := os.ReadFile("../../docs/plugins/any-language.md")
	must.OK(t, err)
	must := []string{wire.CookieKey, wire.CookieValue, "1|1|unix|PATH|grpc|CERT", "08 01"}
	file := wire.File_plugin_proto
	service := file.Services().Get(0)
	must = append(must, string(service.FullName()))
	for i := range service.Methods().Len() {
		must = append(must, string(service.Methods().Get(i).Name()))
	}
	for _, e := range []struct {
		values protoreflect.EnumValueDescriptors
		prefix string
	}{
		{wire.Result_Outcome(0).Descriptor().Values(), "OUTCOME_"},
		{wire.Cancel_Reason(0).Descriptor().Values(), "REASON_"},
		{wire.Result_Ending(0).Descriptor().Values(), "ENDING_"},
	} {
		for i := 1; i < e.values.Len(); i++ { // 0 stands for an absent value
			must = append(must, "`"+strings.TrimPrefix(string(e.values.Get(i).Name()), e.prefix)+"`")
		}
	}
	for _, name := range []protoreflect.Name{"ConfigureRequest", "Item", "Result", "DrainRequest", "DescribeResponse"} {
		fields := file.Messages().ByName(name).Fields()
		for i := range fields.Len() {
			must = append(must, string(fields.Get(i).Name()))
		}
	}
	for _, word := range must {
		if !strings.Contains(string(text), word) {
			t.Errorf("any-language.md does not say %s", word)
		}
	}
}
