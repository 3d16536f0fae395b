package feed

import (
	"reflect"
	"strings"
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
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Deadline = time.Millisecond }, "deadline"},
		{func(c *Config) { c.Deadline = time.Hour }, "deadline"},
		{func(c *Config) { c.Proxy = "ftp://proxy.example" }, "proxy"},
	} {
		c := Config{Deadline: time.Minute}
		tt.change(&c)
		err := c.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want+":")) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
}

func TestConformance(t *testing.T) { sdktest.Conformance(t, Plugin()) }
