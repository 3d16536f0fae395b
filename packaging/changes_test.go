package main

import (
	"strings"
	"testing"
)

func TestSection(t *testing.T) {
	const log = "# Changelog\n\n## [Unreleased]\n\n## [1.1.0] - 2027-01-02\n\n### Added\n\n- b\n\n## [1.0.0] - 2026-12-01\n\n- a\n"
	for version, want := range map[string]string{"v1.1.0": "### Added\n\n- b\n", "1.0.0": "- a\n"} {
		if got, err := section(log, version); err != nil || got != want {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
	for version, want := range map[string]string{"v2.0.0": "no section", "Unreleased": "is empty"} {
		if _, err := section(log, version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", version, err)
		}
	}
}
