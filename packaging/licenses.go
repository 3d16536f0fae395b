package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// allowed are the licenses, by their SPDX identifiers, under which a module may be part of ledgerd.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0",
	"Unlicense"}

// reviewed has the licenses of modules whose files a person has read, because the detector does not recognise them or
// takes them for others. A name that ends with / stands for all modules below.
var reviewed = map[string]string{
	"github.com/modelcontextprotocol/go-sdk": "Apache-2.0", // also MIT; its documents have CC-BY-4.0
	"github.com/pressly/goose/v3":            "MIT",
	"golang.org/x/":                          "BSD-3-Clause",
}

// reviewedLicense returns the license of a module from reviewed, "" if it is not there.
func reviewedLicense(module string) string {
	for name, id := range reviewed {
		if module == name || strings.HasSuffix(name, "/") && strings.HasPrefix(module, name) {
			return id
		}
	}
	return ""
}

// license is a license in CycloneDX: an SPDX identifier, a name, or an expression.
type license struct {
	License    struct{ ID, Name string }
	Expression string
}

// licenses reads a CycloneDX document with licenses. It fails if a module has none, or has one that is not allowed.
func licenses(document io.Reader, out io.Writer) error {
	var sbom struct {
		Components []struct {
			Name, Version string
			Licenses      []license
			Evidence      struct{ Licenses []license }
		}
	}
	if err := json.NewDecoder(document).Decode(&sbom); err != nil {
		return fmt.Errorf("not a CycloneDX document in JSON: %w", err)
	}
	if len(sbom.Components) == 0 {
		return errors.New("the document has no modules")
	}
	count := map[string]int{}
	var bad []string
	for _, c := range sbom.Components {
		found := append(c.Licenses, c.Evidence.Licenses...)
		if id := reviewedLicense(c.Name); id != "" {
			found = []license{{Expression: id}}
		}
		if len(found) == 0 {
			bad = append(bad, c.Name+"@"+c.Version+" has no license that is recognised")
		}
		for _, l := range found {
			id := cmp.Or(l.License.ID, l.License.Name, l.Expression)
			if count[id]++; !slices.Contains(allowed, id) {
				bad = append(bad, fmt.Sprintf("%s@%s has the license %s", c.Name, c.Version, id))
			}
		}
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "\n"))
	}
	for _, id := range allowed {
		if count[id] > 0 {
			fmt.Fprintf(out, "%3d modules under %s\n", count[id], id)
		}
	}
	return nil
}
