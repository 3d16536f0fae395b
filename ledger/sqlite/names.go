package sqlite

import (
	"fmt"
	"io/fs"

	"github.com/ledgerd/ledgerd/ledger"
)

// oneName refuses a file that has a second name. SQLite keeps the log beside the name by which it opened the file,
// so two names have two logs, and a commit in one of them is unknown to readers of the other
// (https://sqlite.org/howtocorrupt.html, "Multiple links to the same file"). A symbolic link is no second name, as it
// is resolved first.
func (f *file) oneName(info fs.FileInfo) error {
	if links := hardLinks(f.path, info); links > 1 {
		return &ledger.Error{Kind: ledger.ErrInvalid,
			Message: fmt.Sprintf("%s has %d names (hard links); each name would have a log of its own, and work would be lost",
				f.name, links),
			Hint: fmt.Sprintf("find the other names: find / -xdev -samefile %s; remove them, or copy the file: "+
				"cp %s NEW while no program uses it", f.path, f.path)}
	}
	if mountPoint(f.path) {
		return &ledger.Error{Kind: ledger.ErrInvalid,
			Message: fmt.Sprintf("%s is mounted by itself, so it has a second name elsewhere; each name would have a log of "+
				"its own, and work would be lost", f.name),
			Hint: "mount the folder that the file lies in, not the file"}
	}
	return nil
}
