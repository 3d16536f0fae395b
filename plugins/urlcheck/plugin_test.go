package urlcheck

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/manualtest"
)

func TestManual(t *testing.T) {
	manualtest.Complete(t, 19, "../internal/web", nil, reflect.TypeFor[Config](), reflect.TypeFor[In](),
		reflect.TypeFor[Out](), reflect.TypeFor[Cert]())
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Proxy = "socks5://proxy.example:1080" }, ""},
		{func(c *Config) { c.Interval = time.Minute }, ""},
		{func(c *Config) { c.Interval = time.Minute + 1 }, "interval"},
		{func(c *Config) { c.Interval = -1 }, "interval"},
		{func(c *Config) { c.Deadline = 0 }, "deadline"},
		{func(c *Config) { c.Deadline = 11 * time.Minute }, "deadline"},
		{func(c *Config) { c.Proxy = "proxy.example:3128" }, "proxy"},
		{func(c *Config) { c.Proxy = "ftp://proxy.example" }, "proxy"},
		{func(c *Config) { c.Proxy = "http://user:secret@%" }, "proxy"},
	} {
		cfg := defaults()
		tt.change(&cfg)
		err := cfg.Validate()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%+v: %v", cfg, err)
		case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want+": ") ||
			strings.Contains(err.Error(), "secret")):
			t.Errorf("%+v: got %v, want an error about %s", cfg, err, tt.want)
		}
	}
}
