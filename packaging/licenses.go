package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// allowed are the licenses, by their SPDX identifiers, under which a module may be part of ledgerd.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// licenses reads a CycloneDX document with licenses. It fails if a module has none, or has one that is not allowed.
func licenses(document io.Reader, out io.Writer) error {
	var sbom struct {
		Components []struct {
			Name, Version string
			Licenses      []struct{ License struct{ ID string } }
			Evidence      struct {
				Licenses []struct{ License struct{ ID string } }
			}
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
		if len(found) == 0 {
			bad = append(bad, c.Name+"@"+c.Version+" has no license that is recognised")
		}
		for _, l := range found {
			if count[l.License.ID]++; !slices.Contains(allowed, l.License.ID) {
				bad = append(bad, fmt.Sprintf("%s@%s has the license %s", c.Name, c.Version, l.License.ID))
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
