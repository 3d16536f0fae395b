package feed

import (
	"reflect"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/manualtest"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestManual(t *testing.T) {
	manualtest.Complete(t, 22, "../internal/web", nil, reflect.TypeFor[Config](), reflect.TypeFor[In](),
		reflect.TypeFor[Out](), reflect.TypeFor[Article]())
}

func TestValidate(t *testing.T) {
	if err := (&Config{Deadline: time.Hour}).Validate(); err == nil {
		t.Error("a deadline of an hour is accepted")
	}
}

func TestConformance(t *testing.T) { sdktest.Conformance(t, Plugin()) }
