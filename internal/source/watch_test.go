package source

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// TestHints: with a schedule that is far away a new file, and one in a new folder, are still seen. The path may be
// a link.
func TestHints(t *testing.T) {
	for _, linked := range []bool{false, true} {
		t.Run(fmt.Sprint("linked ", linked), func(t *testing.T) {
			inMemory(t, func(t *testing.T, p place) {
				root := t.TempDir()
				spec := folder(root)
				if linked {
					spec.Path = filepath.Join(t.TempDir(), "link")
					must.OK(t, os.Symlink(root, spec.Path))
				}
				spec.Schedule = "7d"
				s := p.start(t, spec)
				s.look()
				write(t, filepath.Join(root, "a.csv"), "1")
				s.until("it is added", func(l Look) bool { return l.Verdicts[ledger.VerdictAdded] == 1 })
				write(t, filepath.Join(root, "x/y/b.csv"), "1")
				s.until("it is added, too", func(l Look) bool { return l.Verdicts[ledger.VerdictAdded] == 1 })
			})
		})
	}
}

// TestLostHints: folders that were made while hints were lost are listened to.
func TestLostHints(t *testing.T) {
	root := resolved(t.TempDir())
	h := watch(root, true, slog.New(slog.DiscardHandler))
	defer h.close()
	h.begin()
	must.OK(t, h.watcher.Remove(root)) // so it does not see the folder
	must.OK(t, os.Mkdir(filepath.Join(root, "new"), 0o755))
	h.watcher.Errors <- fsnotify.ErrEventOverflow
	<-h.c
	if all := h.watcher.WatchList(); !slices.Contains(all, filepath.Join(root, "new")) {
		t.Errorf("listens to %q", all)
	}
}
