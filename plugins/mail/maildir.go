package mail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// maildir is a folder that gets mails instead of a server, in the format that mail programs read. The file name comes
// from the Message-ID, so a mail that is delivered twice is one file.
type maildir struct{ path string }

// make creates the folder.
func (d maildir) make() error {
	for _, sub := range []string{"tmp", "new", "cur"} {
		if err := os.MkdirAll(filepath.Join(d.path, sub), 0o700); err != nil {
			return fmt.Errorf("maildir: %w", err)
		}
	}
	return nil
}

// deliver writes a mail atomically and returns its path. The error is a *failure.Error.
func (d maildir) deliver(m *message) (where string, err error) {
	name, _, _ := strings.Cut(m.id, "@")
	where = filepath.Join(d.path, "new", name)
	tmp, err := os.CreateTemp(filepath.Join(d.path, "tmp"), name)
	if err != nil {
		return "", failure.Transient("maildir", err)
	}
	_, err = tmp.Write(m.content)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), where)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // a leftover does no harm: mail programs do not read tmp
		return "", failure.Transient("maildir", err)
	}
	return where, nil
}
