package photo

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"
	"image/jpeg"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// target is where the files of one picture go.
//
// Each begins with a note, a comment of its format, that says whose it is and of what it was made:
// that is how a later run knows what is up to date, and what is not to be touched.
type target struct {
	ctx     context.Context
	root    *os.Root // out_dir; a name cannot lead out of it
	in      In
	attempt int64
	sizes   []size
	names   []string // of the files, with slashes, below out_dir
	item    string   // hash of the picture's path
	note    []byte   // as it stands in a file
	ours    int      // so much of the note is the same for everything that was made of this picture
}

const (
	noteBegins = "ledgerd photo " // every note
	edition    = "1"              // another one when the same settings make other pixels
)

// openTarget names the files and makes their note.
func openTarget(src *source, dir string, in In, attempt int64) (*target, error) {
	sum := sha256.Sum256([]byte(in.Path))
	t := &target{ctx: src.ctx, in: in, attempt: attempt, sizes: parseSizes(in), item: hex.EncodeToString(sum[:8])}
	for _, s := range t.sizes {
		name, err := t.name(s)
		if err != nil {
			return nil, err
		}
		if slices.Contains(t.names, name) {
			return nil, refuse("bad_name", "two sizes would be the same file, %s; put {size} into name, and give each size a name of its own", name)
		}
		t.names = append(t.names, name)
	}
	content, err := src.sum()
	if err != nil {
		return nil, err
	}
	in.Path, in.Name = "", ""
	settings, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	sum = sha256.Sum256(slices.Concat([]byte(edition), settings, content))
	t.setNote(noteBegins+t.item+" ", hex.EncodeToString(sum[:16]))
	if t.root, err = os.OpenRoot(dir); err != nil {
		return nil, tryAgain("cannot_write", "out_dir: %w", err)
	}
	return t, nil
}

// setNote puts the note into the form of a comment of a JPEG or PNG.
func (t *target) setNote(begins, ends string) {
	text := begins + ends
	if t.in.Format == "png" {
		t.note = pngChunk("tEXt", []byte("Comment\x00"+text))
		t.ours = 8 + len("Comment\x00") + len(begins)
		return
	}
	t.note = jpegSegment(0xfe, []byte(text))
	t.ours = 4 + len(begins)
}

// noteAt is where the note begins in a file: behind the start of a JPEG, and the header of a PNG.
func noteAt(format string) int {
	if format == "png" {
		return 33
	}
	return 2
}

func jpegSegment(marker byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(data)+2)), data...)
}

func pngChunk(kind string, data []byte) []byte {
	chunk := append(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), kind...), data...)
	return binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
}

// name is the file of a size, with slashes, below out_dir.
func (t *target) name(s size) (string, error) {
	base := filepath.Base(t.in.Path)
	ext := map[string]string{"jpeg": "jpg", "png": "png"}[t.in.Format]
	name := strings.NewReplacer("{stem}", printable(strings.TrimSuffix(base, filepath.Ext(base))), "{size}", s.name, "{ext}", ext,
		"{folder}", printable(filepath.Base(filepath.Dir(t.in.Path))), "{hash}", t.item).Replace(t.in.Name)
	switch {
	case strings.ContainsAny(name, "{}\\\x00"):
		return "", refuse("bad_name", "name %q: there are {stem} {size} {ext} {folder} {hash}, and no other braces or backslashes", t.in.Name)
	case !filepath.IsLocal(name), path.Clean(name) != name, name == ".":
		return "", refuse("bad_name", "name %q gives %q, which is no file below out_dir", t.in.Name, name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 200 {
			return "", refuse("bad_name", "name %q gives %q, which is too long", t.in.Name, part)
		}
	}
	return name, nil
}

// printable is a name without what could mean something else, cut to 100 bytes.
func printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || strings.ContainsRune(`{}/\`, r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(name, "_"))
	return strings.ToValidUTF8(name[:min(len(name), 100)], "")
}

// upToDate says whether a file is there and made of the same picture by the same settings. It
// refuses one that is not made of this picture.
func (t *target) upToDate(name string) (bool, error) {
	info, err := t.root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, tryAgain("cannot_write", "%w", err)
	case !info.Mode().IsRegular():
		return false, refuse("name_taken", "%s is no regular file", name)
	}
	f, err := t.root.Open(name)
	if err != nil {
		return false, tryAgain("cannot_write", "%w", err)
	}
	defer f.Close()
	got := make([]byte, len(t.note))
	if _, err := f.ReadAt(got, int64(noteAt(t.in.Format))); err != nil && err != io.EOF {
		return false, tryAgain("cannot_write", "%w", err)
	}
	if !bytes.Equal(got[:t.ours], t.note[:t.ours]) {
		return false, refuse("name_taken", "%s is there and was not made of this picture; put {folder} or {hash} into name", name)
	}
	return bytes.Equal(got, t.note), nil
}

// write encodes a picture into a file that appears under its name when it is complete.
func (t *target) write(name string, r *raster, profile []byte) error {
	dir := path.Dir(name)
	if err := t.root.MkdirAll(dir, 0o755); err != nil {
		return tryAgain("cannot_write", "%w", err)
	}
	temp := func(attempt int64) string {
		return path.Join(dir, "."+t.item+"."+path.Base(name)+"."+strconv.FormatInt(attempt, 10)+".tmp")
	}
	for n := max(1, t.attempt-10); n < t.attempt; n++ {
		_ = t.root.Remove(temp(n)) // what a killed attempt left, mostly nothing
	}
	f, err := t.root.OpenFile(temp(t.attempt), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return tryAgain("cannot_write", "%w", err)
	}
	defer t.root.Remove(temp(t.attempt)) // it mostly has its name by now
	err = t.encode(f, r, profile)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	if err == nil {
		err = t.publish(temp(t.attempt), name)
	}
	if err != nil {
		return tryAgain("cannot_write", "%w", err)
	}
	return nil
}

// publish gives a file its name. If there was none of that name it takes care that nobody else
// has made one meanwhile, where the file system can.
func (t *target) publish(temp, name string) error {
	_, err := t.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = t.root.Link(temp, name); errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return t.root.Rename(temp, name) // of a link to the same file it does nothing
}

// settle waits until the disk has the names of the files, too, and those of their folders.
func (t *target) settle() error {
	done := map[string]bool{}
	for _, name := range t.names {
		for folder := path.Dir(name); !done[folder]; folder = path.Dir(folder) {
			done[folder] = true
			dir, err := t.root.Open(folder)
			if err == nil {
				err = errors.Join(dir.Sync(), dir.Close())
			}
			if err != nil {
				return tryAgain("cannot_write", "%w", err)
			}
		}
	}
	return nil
}

// encode writes a picture, its note and its profile.
func (t *target) encode(w io.Writer, r *raster, profile []byte) error {
	extra := t.note
	if t.in.Format == "png" {
		if profile != nil {
			var packed bytes.Buffer
			z := zlib.NewWriter(&packed)
			_, _ = z.Write(profile) // into memory
			_ = z.Close()
			extra = slices.Concat(extra, pngChunk("iCCP", slices.Concat([]byte("ICC profile\x00\x00"), packed.Bytes())))
		}
		return png.Encode(&inserter{t.ctx, w, noteAt("png"), extra}, r.image("png"))
	}
	parts := slices.Collect(slices.Chunk(profile, 65_000)) // a segment has 65,533 bytes
	for i, part := range parts {
		extra = slices.Concat(extra, jpegSegment(0xe2, slices.Concat([]byte("ICC_PROFILE\x00"), []byte{byte(i + 1), byte(len(parts))}, part)))
	}
	return jpeg.Encode(&inserter{t.ctx, w, noteAt("jpeg"), extra}, r.image("jpeg"), &jpeg.Options{Quality: t.in.Quality})
}

// inserter writes what it gets, and extra after so many bytes. It stops when ctx ends.
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
