package urlcheck

import (
	"github.com/ledgerd/ledgerd/internal/must"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The package comment is the manual: it names every field and every code.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	must.OK(t, err)
	manual := string(text)
	for _, of := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[In](), reflect.TypeFor[Out](),
		reflect.TypeFor[Cert]()} {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && !regexp.MustCompile(`//\t.*\b`+name+`\b`).MatchString(manual) {
				t.Errorf("doc.go does not explain %s", name)
			}
		}
	}
	files, err := filepath.Glob("*.go")
	must.OK(t, err)
	shared, err := filepath.Glob("../internal/web/*.go")
	must.OK(t, err)
	codes := map[string]bool{}
	for _, f := range append(files, shared...) {
		source, err := os.ReadFile(f)
		must.OK(t, err)
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:Permanent|Transient|return)(?:\(| )"([a-z_]+)"`).FindAllStringSubmatch(
			string(source), -1) {
			codes[m[1]] = true
		}
	}
	if len(codes) < 19 {
		t.Errorf("found %d codes only: %v", len(codes), codes)
	}
	for code := range codes {
		if !regexp.MustCompile(`(?m)^//\t` + code + ` +\S`).MatchString(manual) {
			t.Errorf("doc.go does not explain the code %s", code)
		}
	}
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
