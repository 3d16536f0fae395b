package filecsv

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"

	"github.com/ledgerd/ledgerd/plugins/internal/itemfile"
)

// file is a regular file that must not change while it is read.
type file struct {
	*os.File
	path   string
	before fs.FileInfo
}

// openFile opens a regular file.
func openFile(path string) (*file, error) {
	f, err := itemfile.Open(path)
	if err != nil {
		return nil, openError(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, openError(err)
	}
	return &file{f, path, info}, nil
}

// digestOf returns the SHA-256 of a file.
func digestOf(path string) (string, error) {
	f, err := openFile(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", tryAgain("cannot_read", "cannot read the file: %v", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func openError(err error) error {
	if r, ok := errors.AsType[*itemfile.Refusal](err); ok {
		return refuse(r.Code, "%s", r.Text)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return refuse("not_found", "there is no such file (any more)")
	}
	return tryAgain("cannot_read", "cannot open the file: %v", errors.Unwrap(err))
}

// checkUnchanged returns an error if the file has changed since it was opened.
func (f *file) checkUnchanged() error {
	now, err := os.Stat(f.path)
	if err == nil && os.SameFile(f.before, now) && now.Size() == f.before.Size() &&
		now.ModTime().Equal(f.before.ModTime()) {
		return nil
	}
	return errChanged
}

// meter counts and hashes the bytes read, reports progress and ends with ctx. It hashes a block while the caller
// works on it, so on a free core the digest costs no time.
type meter struct {
	ctx      context.Context
	src      io.Reader
	progress func(read int64)
	read     int64
	block    []byte // the last block read
	unused   []byte // of block
	sum      hash.Hash
	idle     chan struct{} // holds a token while block is not being hashed
}

func newMeter(ctx context.Context, src io.Reader, progress func(int64)) *meter {
	m := &meter{ctx: ctx, src: src, progress: progress, block: make([]byte, 128<<10), sum: sha256.New(),
		idle: make(chan struct{}, 1)}
	m.idle <- struct{}{}
	return m
}

func (m *meter) Read(p []byte) (int, error) {
	if len(m.unused) == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, m.unused)
	m.unused = m.unused[n:]
	return n, nil
}

func (m *meter) next() error {
	if m.ctx.Err() != nil {
		return context.Cause(m.ctx)
	}
	<-m.idle
	n, err := m.src.Read(m.block)
	m.unused = m.block[:n]
	go func(block []byte) {
		m.sum.Write(block)
		m.idle <- struct{}{}
	}(m.unused)
	m.read += int64(n)
	m.progress(m.read)
	switch {
	case n > 0:
		return nil // the next Read returns an error again
	case err == io.EOF:
		return err
	}
	return tryAgain("cannot_read", "reading stopped at byte %s: %v", humanize.Comma(m.read), err)
}

// digest returns the SHA-256 of the bytes read.
func (m *meter) digest() string {
	<-m.idle
	defer func() { m.idle <- struct{}{} }()
	return hex.EncodeToString(m.sum.Sum(nil))
}

// unpack returns src, unpacked if it is gzip, and fails after limit bytes. The buffer is for Peek; long reads bypass
// it.
func unpack(src io.Reader, name string, limit int64) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(src, 64<<10)
	magic, err := in.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	out := io.Reader(in)
	if string(magic) == "\x1f\x8b" {
		z := gunzip{new(gzip.Reader), in}
		if err := z.next(); err != nil {
			return nil, gzipError(err)
		}
		out = z
	} else if strings.HasSuffix(strings.ToLower(name), ".gz") {
		return nil, refuse("bad_gzip", "the name ends in .gz but the file is not gzip")
	}
	return bufio.NewReader(&capped{src: out, limit: limit}), nil
}

// gunzip reads the members of a gzip file. Its errors name the fault without details of one file, so that they can be
// counted.
type gunzip struct {
	member *gzip.Reader
	in     *bufio.Reader
}

func (z gunzip) Read(p []byte) (int, error) {
	for {
		n, err := z.member.Read(p)
		if err == io.EOF {
			err = z.next()
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, gzipError(err)
		}
	}
}

// next begins the next member, and returns [io.EOF] if there is none. Zero bytes between members and after the last
// one are padding, for example to a block of a tape.
func (z gunzip) next() error {
	for {
		b, err := z.in.Peek(1)
		if err != nil {
			return err
		}
		if b[0] != 0 {
			break
		}
		_, _ = z.in.Discard(1) // cannot fail after Peek
	}
	err := z.member.Reset(z.in)
	if err == nil {
		z.member.Multistream(false) // multistream mode takes padding for a member
	}
	return err
}

// gzipError distinguishes a damaged gzip file from an error of reading it.
func gzipError(err error) error {
	_, corrupt := errors.AsType[flate.CorruptInputError](err) // its text has an offset
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse("bad_gzip", "the gzip file ends in the middle")
	case corrupt:
		return refuse("bad_gzip", "the gzip file is damaged: invalid data")
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return refuse("bad_gzip", "the gzip file is damaged: %v", err)
	}
	return err
}

// capped fails after limit bytes.
type capped struct {
	src         io.Reader
	limit, read int64
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	if c.read += int64(n); c.read > c.limit {
		return 0, refuse("too_big", "more than %s of text; to allow it: --with max_bytes=…",
			humanize.IBytes(uint64(c.limit)))
	}
	return n, err
}
