// Package manualtest compares the manual of a plugin, its package comment, with the code.
package manualtest

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

var codes = regexp.MustCompile(`(?:Permanent|Transient|Unknown|return)(?:\(| )"([a-z_]+)"`)

// Complete fails the test if the doc.go of its folder does not explain a field of the types, or a code of a failure in
// this folder or in the folder other. It also fails if it finds fewer codes than least: then its pattern is outdated.
// none lists words that look like codes and are none.
func Complete(t *testing.T, least int, other string, none []string, types ...reflect.Type) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	must.OK(t, err)
	lacks := func(what, form string) {
		if !regexp.MustCompile(form).Match(text) {
			t.Errorf("doc.go does not explain %s", what)
		}
	}
	for _, t := range types {
		for _, field := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
				lacks(name, `//\t.*\b`+name+`\b`)
			}
		}
	}
	found := map[string]bool{}
	for _, folder := range []string{".", other} {
		files, err := filepath.Glob(folder + "/*.go")
		must.OK(t, err)
		for _, f := range files {
			source, err := os.ReadFile(f)
			must.OK(t, err)
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			for _, m := range codes.FindAllSubmatch(source, -1) {
				found[string(m[1])] = true
			}
		}
	}
	maps.DeleteFunc(found, func(code string, _ bool) bool { return slices.Contains(none, code) })
	if len(found) < least {
		t.Errorf("found %d codes only: %q", len(found), slices.Sorted(maps.Keys(found)))
	}
	for code := range found {
		lacks("the code "+code, `(?m)^//\t`+code+` +\S`)
	}
}
