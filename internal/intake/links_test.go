package intake

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

func TestLinks(t *testing.T) {
	tree(t, "in/a/x.csv", "in/z/y.csv", "elsewhere/e.csv")
	for _, l := range [][2]string{{"..", "in/a/up"}, {"../in", "in/loop"}, {"../elsewhere", "in/b"},
		{"nowhere", "in/gone.csv"}, {"a/x.csv", "in/link.csv"}} {
		must.OK(t, os.Symlink(l[0], l[1]))
	}
	got, err := read(t, Source{Input: ledger.Input{Type: File}, Args: []string{"in"}, FollowLinks: true})
	must.OK(t, err)
	want := []string{"+ in/a/x.csv", "- in/gone.csv: a link to something that does not exist", "+ in/link.csv",
		"+ in/z/y.csv", "+ in/b/e.csv"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a file is taken once and by its own name\n%s", diff)
	}
	got, err = read(t, Source{Input: ledger.Input{Type: File}, Args: []string{"in"}, Checksum: true})
	must.OK(t, err)
	want = []string{"- in/a/up: " + IsLink, "+ in/a/x.csv", "- in/b: " + IsLink, "- in/gone.csv: " + IsLink,
		"- in/link.csv: " + IsLink, "- in/loop: " + IsLink, "+ in/z/y.csv"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("links in a folder are left out\n%s", diff)
	}
	got, err = read(t, Source{Input: ledger.Input{Type: File}, Args: []string{"in/link.csv", "in/*.csv"}})
	must.OK(t, err)
	want = []string{"+ in/link.csv", "- in/gone.csv: " + IsLink, "- in/link.csv: " + IsLink}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("one that is named is followed, one that a pattern finds is not\n%s", diff)
	}
}

// ** in a pattern does not follow circles of links.
func TestGlobLinks(t *testing.T) {
	tree(t, "a/x.txt", "y.txt")
	must.OK(t, os.Symlink("..", "a/up"))
	got, err := read(t, Source{Input: ledger.Input{Type: File}, Args: []string{"**/*.txt"}})
	if diff := cmp.Diff([]string{"+ y.txt", "+ a/x.txt"}, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}
