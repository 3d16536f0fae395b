package sdktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk"
)

const updateFlag = "update"

// Golden compares the plugin's description (its schemas, defaults, kinds, examples) with
// testdata/NAME.describe.json. Users, configs and stored items rely on it, so it must not change by
// chance. After a change that is meant, go test -update writes the file anew. Parts that differ
// from machine to machine, or with the SDK, are left out.
func Golden(t testing.TB, p *sdk.Plugin) {
	t.Helper()
	d, err := describe(p)
	must.OK(t, err)
	d.Sdk = ""
	if p.Concurrency == 0 { // one per CPU
		d.Concurrency = 0
	}
	var have bytes.Buffer
	must.OK(t, json.Indent(&have, pluginproc.JSON(d), "", "  "))
	have.WriteByte('\n')
	file := filepath.Join("testdata", p.Name+".describe.json")
	if f := flag.Lookup(updateFlag); f != nil && f.Value.String() == "true" {
		err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, have.Bytes(), 0o644))
		must.OK(t, err)
		return
	}
	want, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.Fatalf("there is no %s yet: go test -update writes it", file)
	case err != nil:
		t.Fatal(err)
	}
	if line, before, now := firstDifference(string(want), have.String()); line > 0 {
		t.Errorf("the description of plugin %s has changed, first in line %d of %s:\n  was: %s\n  is:  %s\nif that is "+
			"meant: go test -update", p.Name, line, file, before, now)
	}
}

// firstDifference is the number of the first line that differs, from 1, and the line in both texts; 0 if there is none.
func firstDifference(a, b string) (line int, inA, inB string) {
	const end = "\n(nothing)" // a line after the last
	as, bs := strings.Split(a+end, "\n"), strings.Split(b+end, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return i + 1, strings.TrimSpace(as[i]), strings.TrimSpace(bs[i])
		}
	}
	return 0, "", ""
}
