package source

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// otherUser is the id of another user than root.
const otherUser = 65534

// giveAway makes another user the owner of a file, folder or link. It does nothing if the test does not run as root.
func giveAway(t *testing.T, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	must.OK(t, os.Lchown(path, otherUser, -1))
}

// TestLinksLeadNowhere: through a link to a file or folder, a source does not add, move or delete files outside of its
// folder. With follow_links it adds them.
func TestLinksLeadNowhere(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		inbox, outside := t.TempDir(), t.TempDir()
		write(t, filepath.Join(outside, "secret.csv"), "1")
		for name, to := range map[string]string{"file.csv": filepath.Join(outside, "secret.csv"), "folder": outside} {
			must.OK(t, os.Symlink(to, filepath.Join(inbox, name)))
			giveAway(t, filepath.Join(inbox, name))
		}
		giveAway(t, inbox)
		spec := folder(inbox)
		for finished, own := range map[string]string{"delete": "deleted.csv", "move": "moved.csv"} {
			write(t, filepath.Join(inbox, own), "1")
			giveAway(t, filepath.Join(inbox, own))
			spec.Finished, spec.MoveTo, spec.Name = finished, "", finished
			if finished == "move" {
				spec.MoveTo = t.TempDir()
			}
			s := p.start(t, spec)
			if l := s.look(); l.Err != nil || l.Found != 1 {
				t.Errorf("%s: %+v", finished, l)
			}
			p.work(t, 1, ledger.Done(nil))
			s.until("its own file is put away", func(l Look) bool { return l.Finished == 1 })
			s.stop()
			if !exists(filepath.Join(outside, "secret.csv")) || exists(filepath.Join(inbox, own)) {
				t.Errorf("%s: the wrong file is gone", finished)
			}
		}
		spec.Finished, spec.MoveTo, spec.FollowLinks, spec.Name = "keep", "", true, "follows"
		if l := p.start(t, spec).look(); l.Err != nil || l.Found != 2 {
			t.Errorf("with follow_links: %+v", l)
		}
	})
}

// TestSwappedFolder: a race (TOCTOU) in which a folder is replaced by a link again and again. The link leads to a file
// of the same name and version outside of the folder. putAway does not touch that file.
func TestSwappedFolder(t *testing.T) {
	inbox, outside, away := t.TempDir(), t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "a.csv")
	write(t, victim, "1")
	info, err := os.Stat(victim)
	must.OK(t, err)
	sub, spare, link := filepath.Join(inbox, "sub"), filepath.Join(inbox, "spare"), filepath.Join(inbox, "link")
	must.OK(t, os.Mkdir(sub, 0o755))
	must.OK(t, os.Symlink(outside, link))
	giveAway(t, link)
	giveAway(t, inbox)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(sub, spare)
			_ = os.Rename(link, sub)
			_ = os.Rename(sub, link)
			_ = os.Rename(spare, sub)
		}
	}()
	own := filepath.Join("sub", "a.csv")
	for i := range 2000 {
		p := putter{from: inbox}
		if i%2 == 1 {
			p.to = away
		}
		if f, err := os.OpenInRoot(inbox, own); err == nil {
			f.Close()
		}
		// The folder itself has no file. Errors depend on the moment of the swap.
		if done, _ := p.putAway(t.Context(), own, intake.Version(info)); done {
			t.Fatal("a file was put away, and the folder had none")
		}
	}
	close(stop)
	<-stopped
	if !exists(victim) {
		t.Error("the file outside is gone")
	}
	if left, err := os.ReadDir(away); err != nil || len(left) > 1 {
		t.Errorf("%v, %v", left, err)
	}
}
