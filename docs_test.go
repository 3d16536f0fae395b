package ledgerd

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/ledgerd/ledgerd/internal/must"
)

// pages reads every Markdown file of the tree, those of the modules below included.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		base := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(base, ".md"):
			return nil
		}
		text, err := os.ReadFile(name)
		texts[filepath.ToSlash(name)] = prose(string(text))
		return err
	})
	must.OK(t, err)
	if len(texts) < 10 {
		t.Fatalf("found only %d pages; this test runs in the root of the module", len(texts))
	}
	return texts
}

var (
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
	ticked = regexp.MustCompile("`[^`\n]+`")
	linked = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headed = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	ours   = regexp.MustCompile(`https://github\.com/ledgerd/ledgerd/(?:blob|tree)/main/([^)\s]+)`)
)

// prose is a page without its blocks of code, in which "# " begins a comment and "](" may be anything.
func prose(page string) string { return fenced.ReplaceAllString(page, "") }

// TestLinks follows the links of every page to files of this tree and to headings in them.
func TestLinks(t *testing.T) {
	texts := pages(t)
	followed := 0
	for page, text := range texts {
		var targets []string
		for _, link := range linked.FindAllStringSubmatch(ticked.ReplaceAllString(text, "code"), -1) {
			if !strings.Contains(link[1], ":") {
				targets = append(targets, path.Join(path.Dir(page), link[1]))
			}
			if strings.HasPrefix(link[1], "#") {
				targets[len(targets)-1] = page + link[1]
			}
		}
		for _, link := range ours.FindAllStringSubmatch(text, -1) {
			targets = append(targets, link[1])
		}
		for _, target := range targets {
			followed++
			file, anchor, inside := strings.Cut(target, "#")
			if _, err := os.Stat(filepath.FromSlash(file)); err != nil {
				t.Errorf("%s has a link to %s, which is not there", page, file)
			} else if inside && !anchors(texts[file])[anchor] {
				t.Errorf("%s has a link to %s, which has no heading #%s", page, file, anchor)
			}
		}
	}
	if followed < 50 {
		t.Errorf("followed only %d links; this test has lost its object", followed)
	}
}

// anchors are the names that GitHub gives the headings of a page.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, heading := range headed.FindAllStringSubmatch(text, -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.TrimSpace(heading[1]))
		unique := name
		for n := 1; names[unique]; n++ {
			unique = name + "-" + strconv.Itoa(n)
		}
		names[unique] = true
	}
	return names
}

// Every direct requirement has its reason in docs/design.md, and every module with a reason is
// required.
func TestDependenciesAreExplained(t *testing.T) {
	text, err := os.ReadFile("docs/design.md")
	must.OK(t, err)
	_, rest, _ := strings.Cut(string(text), "\n## Dependencies\n")
	table, _, _ := strings.Cut(rest, "\n## ")
	explained := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| (?:tests: )?([^|]+/[^|]+) \|`).FindAllStringSubmatch(table, -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			explained[name] = true
		}
	}
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	must.OK(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	must.OK(t, json.Unmarshal(out, &mod))
	for _, needed := range mod.Require {
		name := strings.TrimPrefix(needed.Path, "github.com/")
		if !needed.Indirect && !explained[name] {
			t.Errorf("docs/design.md has no reason for %s in its table of dependencies", needed.Path)
		}
		delete(explained, name)
	}
	for name := range explained {
		t.Errorf("docs/design.md has a reason for %s, which go.mod does not require", name)
	}
}
