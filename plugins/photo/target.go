package photo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"image/jpeg"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/ledgerd/ledgerd/plugins/photo/internal/picture"
	"github.com/ledgerd/ledgerd/sdk"
)

// target is the destination of the files of one picture.
//
// Each file begins with a note, a comment of its format, that names its maker, picture and settings. From it a later
// run knows which files are up to date, and which it must not touch.
type target struct {
	ctx     context.Context
	root    *os.Root // out_dir; a name cannot lead out of it
	in      In
	attempt int64
	names   []string // of the files, with slashes, below out_dir
	item    string   // hash of the picture's path
	note    []byte   // a whole comment in the format of the files
	noteAt  int      // byte of a file at which the note begins
}

const (
	noteBegins = "ledgerd photo " // the start of every note
	noteEnds   = 128              // the note ends before this byte of a file
	edition    = "3"              // changes when the same settings give other pixels
)

func cannotWrite(err error) error { return sdk.Code("cannot_write", err) }

// openTarget names the files of a picture and makes their note.
func openTarget(ctx context.Context, dir string, in In, sizes []size, data []byte, attempt int64) (*target, error) {
	hash := sha256.Sum256([]byte(in.Path))
	t := &target{ctx: ctx, in: in, attempt: attempt, item: hex.EncodeToString(hash[:8])}
	for _, s := range sizes {
		name, err := t.name(s)
		if err != nil {
			return nil, err
		}
		if slices.Contains(t.names, name) {
			return nil, refuse("bad_name", "two sizes would be the same file, %s; put {size} into name, and give each size a "+
				"name of its own", name)
		}
		t.names = append(t.names, name)
	}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %q %s %d ", edition, in.Sizes, in.Format, in.Quality) // a hash cannot fail
	_, _ = sum.Write(data)
	t.note, t.noteAt = comment(in.Format, noteBegins+t.item+" "+hex.EncodeToString(sum.Sum(nil)[:16]))
	var err error
	t.root, err = os.OpenRoot(dir)
	return t, cannotWrite(err)
}

// comment returns a text as a comment of a JPEG or PNG, and its place in the file: after the start of a JPEG, or after
// the header of a PNG.
func comment(format, text string) (b []byte, at int) {
	if format == "jpeg" {
		return append(binary.BigEndian.AppendUint16([]byte{0xff, 0xfe}, uint16(len(text)+2)), text...), 2
	}
	text = "tEXtComment\x00" + text
	b = append(binary.BigEndian.AppendUint32(nil, uint32(len(text)-4)), text...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE([]byte(text))), 33
}

// name returns the file of a size, with slashes, below out_dir.
func (t *target) name(s size) (string, error) {
	base := filepath.Base(t.in.Path)
	ext := map[string]string{"jpeg": "jpg", "png": "png"}[t.in.Format]
	name := strings.NewReplacer("{stem}", strings.TrimSuffix(base, filepath.Ext(base)), "{size}", s.name, "{ext}", ext,
		"{folder}", filepath.Base(filepath.Dir(t.in.Path)), "{hash}", t.item).Replace(t.in.Name)
	if !filepath.IsLocal(name) || path.Clean(name) != name || name == "." || len(path.Base(name)) > 200 {
		return "", refuse("bad_name", "name %q gives %q, which is not a file below out_dir, or too long", t.in.Name, name)
	}
	return name, nil
}

// upToDate reports whether a file exists and was made from the same picture with the same settings. It refuses a file
// that was not made from this picture.
func (t *target) upToDate(name string) (bool, error) {
	f, err := t.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe must not block
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, cannotWrite(err)
	}
	defer f.Close()
	head := make([]byte, noteEnds)
	_, err = f.ReadAt(head, 0)
	switch {
	case bytes.Contains(head, []byte(noteBegins+t.item+" ")):
		return bytes.Contains(head, t.note), nil
	case err == nil, err == io.EOF, errors.Is(err, syscall.EISDIR):
		return false, refuse("name_taken", "%s is there and was not made of this picture; put {folder} or {hash} into name",
			name)
	}
	return false, cannotWrite(err)
}

// write encodes a picture into a file. The file gets its name only when it is complete.
func (t *target) write(name string, p picture.Picture) error {
	temp := func(attempt int64) string {
		return path.Join(path.Dir(name), fmt.Sprintf(".%s.%s.%d.tmp", t.item, path.Base(name), attempt))
	}
	// Remove the files of killed attempts. The first attempt after a restore of the ledger has a number k·1000+1. The
	// attempts before the restore usually began at 1, so remove the files of 1 to 10.
	for n := range int64(10) {
		if before := t.attempt - 1 - n; before > 0 {
			_ = t.root.Remove(temp(before))
		}
		if t.attempt > 1_000 && t.attempt%1_000 == 1 {
			_ = t.root.Remove(temp(n + 1))
		}
	}
	if err := t.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return cannotWrite(err)
	}
	f, err := t.root.OpenFile(temp(t.attempt), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return cannotWrite(err)
	}
	defer t.root.Remove(temp(t.attempt)) // usually it has been renamed by now
	if err = t.encode(f, p); err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if err != nil {
		return cannotWrite(err)
	}
	return t.publish(temp(t.attempt), name)
}

// publish gives a file its name. If the name exists, it checks again, since another picture may have got the name
// while this one was decoded.
func (t *target) publish(temp, name string) error {
	if err := t.root.Link(temp, name); err == nil {
		return nil
	}
	if _, err := t.upToDate(name); err != nil {
		return err
	}
	return cannotWrite(t.root.Rename(temp, name)) // replaces a file of this picture, or the file system has no links
}

// syncFolders syncs the folders, so that the names of the files are on the disk, too.
func (t *target) syncFolders() error {
	done := map[string]bool{}
	for _, name := range t.names {
		for folder := path.Dir(name); !done[folder]; folder = path.Dir(folder) {
			done[folder] = true
			dir, err := t.root.Open(folder)
			if err == nil {
				err = errors.Join(dir.Sync(), dir.Close())
			}
			if err != nil {
				return cannotWrite(err)
			}
		}
	}
	return nil
}

// encode writes a picture with its note.
func (t *target) encode(w io.Writer, p picture.Picture) error {
	w = &inserter{t.ctx, w, t.noteAt, t.note}
	if t.in.Format == "jpeg" {
		return jpeg.Encode(w, p.Image("jpeg"), &jpeg.Options{Quality: t.in.Quality})
	}
	return png.Encode(w, p.Image("png"))
}

// inserter writes its input, with extra after so many bytes. It stops when ctx ends.
type inserter struct {
	ctx   context.Context
	w     io.Writer
	after int
	extra []byte
}

func (i *inserter) Write(p []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, context.Cause(i.ctx)
	}
	if i.extra == nil || len(p) < i.after {
		i.after -= len(p)
		return i.w.Write(p)
	}
	whole := slices.Concat(p[:i.after], i.extra, p[i.after:])
	i.extra = nil
	_, err := i.w.Write(whole)
	return len(p), err
}
