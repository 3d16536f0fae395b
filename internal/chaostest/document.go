//go:build unix

package chaostest

import (
	"fmt"
	"os"
	"strings"
)

// Fill replaces the text of a document between the marks begin and end.
func Fill(path, begin, end, text string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, tail, begun := strings.Cut(string(raw), begin)
	_, after, ended := strings.Cut(tail, end)
	if !begun || !ended {
		return fmt.Errorf("%s: has no place between %q and %q", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+text+end+after), 0o644)
}
