package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// changes prints the section of a version in the changelog.
func changes(args []string) error {
	if len(args) != 2 {
		return errors.New("want a changelog and a version")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	section, err := section(string(text), args[1])
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	_, err = os.Stdout.WriteString(section)
	return err
}

// section returns the text below "## [VERSION]", up to the next version. A v in front of the version is ignored.
func section(changelog, version string) (string, error) {
	version = strings.TrimPrefix(version, "v")
	_, rest, found := strings.Cut("\n"+changelog, "\n## ["+version+"]")
	if !found {
		return "", fmt.Errorf("no section ## [%s]; rename [Unreleased] and write its date", version)
	}
	_, rest, _ = strings.Cut(rest, "\n")
	text, _, _ := strings.Cut(rest, "\n## ")
	if text = strings.TrimSpace(text); text == "" {
		return "", fmt.Errorf("the section of %s is empty", version)
	}
	return text + "\n", nil
}
