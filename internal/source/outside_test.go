package source

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// another is a user other than the one of this process.
const another = 65534

// stranger gives something that root has made, a link included, to another user; only root can.
func stranger(t *testing.T, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	must.OK(t, os.Lchown(path, another, -1))
}

// TestLinksLeadNowhere: neither a link to a file nor one to a folder makes a source add, move or delete what
// lies outside of its folder; with follow_links it is added.
func TestLinksLeadNowhere(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		inbox, outside := t.TempDir(), t.TempDir()
		write(t, filepath.Join(outside, "secret.csv"), "1")
		for name, to := range map[string]string{"file.csv": filepath.Join(outside, "secret.csv"), "folder": outside} {
			must.OK(t, os.Symlink(to, filepath.Join(inbox, name)))
			stranger(t, filepath.Join(inbox, name))
		}
		stranger(t, inbox)
		spec := folder(inbox)
		for finished, own := range map[string]string{"delete": "deleted.csv", "move": "moved.csv"} {
			write(t, filepath.Join(inbox, own), "1")
			stranger(t, filepath.Join(inbox, own))
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

// TestSwappedFolder: a folder is replaced by a link again and again, between the look at a file and its
// removal. putAway does not touch the file of the same name and version that the link leads to.
func TestSwappedFolder(t *testing.T) {
	inbox, outside, away := t.TempDir(), t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "a.csv")
	write(t, victim, "1")
	info, err := os.Stat(victim)
	must.OK(t, err)
	sub, spare, link := filepath.Join(inbox, "sub"), filepath.Join(inbox, "spare"), filepath.Join(inbox, "link")
	must.OK(t, os.Mkdir(sub, 0o755))
	must.OK(t, os.Symlink(outside, link))
	stranger(t, link)
	stranger(t, inbox)
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
		// There is either nothing, the file below the link, or ours; errors are about the first two.
		if f, err := os.OpenInRoot(inbox, own); err == nil {
			f.Close()
		}
		if done, _ := p.putAway(own, intake.Version(info)); done {
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
