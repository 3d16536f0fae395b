package main

import (
	"strings"
	"testing"
)

func TestLicenses(t *testing.T) {
	for document, want := range map[string]string{
		`{"components":[{"name":"a","version":"v1","evidence":{"licenses":[{"license":{"id":"MIT"}}]}}]}`:             "",
		`{"components":[{"name":"a","version":"v1"}]}`:                                                                "a@v1 has no license",
		`{"components":[{"name":"a","version":"v1","licenses":[{"license":{"id":"AGPL-3.0-only"}}]}]}`:                "AGPL-3.0-only",
		`{"components":[{"name":"golang.org/x/a","version":"v1","licenses":[{"license":{"id":"BSD-Source-Code"}}]}]}`: "",
		`{}`: "no modules",
		`x`:  "CycloneDX",
	} {
		err := licenses(strings.NewReader(document), new(strings.Builder))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", document, err)
		}
	}
}
