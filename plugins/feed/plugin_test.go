package feed

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// The package comment is the manual: it names every field and every code.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	must.OK(t, err)
	manual := string(text)
	for _, of := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[In](), reflect.TypeFor[Out](),
		reflect.TypeFor[Article]()} {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && !regexp.MustCompile(`//\t.*\b`+name+`\b`).MatchString(manual) {
				t.Errorf("doc.go does not explain %s", name)
			}
		}
	}
	codes := map[string]bool{}
	for _, pattern := range []string{"*.go", "../internal/web/*.go"} {
		files, err := filepath.Glob(pattern)
		must.OK(t, err)
		for _, f := range files {
			source, err := os.ReadFile(f)
			must.OK(t, err)
			for _, m := range regexp.MustCompile(`(?:Permanent|Transient|return)(?:\(| )"([a-z_]+)"`).FindAllStringSubmatch(
				string(source), -1) {
				if !strings.HasSuffix(f, "_test.go") {
					codes[m[1]] = true
				}
			}
		}
	}
	if len(codes) < 22 {
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
