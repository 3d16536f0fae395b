package photo

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"image"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/image/webp"

	"github.com/ledgerd/ledgerd/sdk"
)

// format is a kind of file, known by how it begins ("?" is any byte). One without functions is
// known only to be called by its name.
type format struct {
	name, magic string
	config      func(io.Reader) (image.Config, error)
	decode      func(io.Reader) (image.Image, error)
}

var formats = []format{
	{"jpeg", "\xff\xd8\xff", jpeg.DecodeConfig, jpeg.Decode},
	{"png", "\x89PNG\r\n\x1a\n", png.DecodeConfig, png.Decode},
	{"gif", "GIF8?a", gif.DecodeConfig, gif.Decode},
	{"webp", "RIFF????WEBP", webp.DecodeConfig, webp.Decode},
	{"tiff", "II*\x00", tiff.DecodeConfig, tiff.Decode},
	{"tiff", "MM\x00*", tiff.DecodeConfig, tiff.Decode},
	{"bmp", "BM", bmp.DecodeConfig, bmp.Decode},
	{name: "HEIC", magic: "????ftyphe"},
	{name: "HEIF", magic: "????ftypm"},
	{name: "AVIF", magic: "????ftypavi"},
	{name: "JPEG XL", magic: "\xff\x0a"},
	{name: "JPEG XL", magic: "\x00\x00\x00\x0cJXL "},
	{name: "JPEG 2000", magic: "\x00\x00\x00\x0cjP  "},
	{name: "Photoshop", magic: "8BPS"},
	{name: "BigTIFF", magic: "II+\x00"},
}

func (f format) begins(head []byte) bool {
	for i := range f.magic {
		if i >= len(head) || f.magic[i] != '?' && f.magic[i] != head[i] {
			return false
		}
	}
	return true
}

// maxScans of a progressive JPEG; cameras and programs write about ten. Each may take a few bytes
// and makes the decoder go over the whole picture.
const maxScans = 100

// maxSide of a picture, in pixels, is that of a JPEG. The scaler takes memory by side and not by area.
const maxSide = 65_535

// source is a picture file. Reading it ends when ctx does.
type source struct {
	ctx      context.Context
	file     *os.File
	info     fs.FileInfo
	progress func(read, size int64)
	format   format
	w, h     int // as the header says

	at     int64
	scans  int
	ended  bool  // more was asked for than there is
	failed error // why reading stopped, if that is not the picture's fault
}

// open opens a picture and reads its header.
func open(ctx context.Context, cfg *Config, path string, progress func(read, size int64)) (*source, error) {
	info, err := os.Stat(path) // first: opening some devices is an act in itself
	if err == nil && !info.Mode().IsRegular() {
		return nil, refuse("not_a_file", "it is no regular file")
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe put there meanwhile blocks nobody
	if err == nil {
		info, err = f.Stat()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, refuse("not_found", "there is no such file (any more)")
	case errors.Is(err, fs.ErrPermission):
		return nil, refuse("permission", "not allowed to read the file")
	case err != nil:
		return nil, tryAgain("cannot_read", "cannot open the file: %w", err)
	}
	s := &source{ctx: ctx, file: f, info: info, progress: progress}
	if err := s.header(cfg); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// header finds out what the file is, and refuses what is too large before anything is decoded.
func (s *source) header(cfg *Config) error {
	if !s.info.Mode().IsRegular() {
		return refuse("not_a_file", "it is no regular file")
	}
	if s.info.Size() > cfg.MaxBytes {
		return refuse("too_large", "the file has %d bytes, allowed are %d", s.info.Size(), cfg.MaxBytes)
	}
	head := make([]byte, 80)
	n, err := s.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return s.failure(err)
	}
	for _, f := range formats {
		if f.begins(head[:n]) {
			s.format = f
			break
		}
	}
	switch {
	case s.format.name == "":
		return refuse("not_an_image", "it is no JPEG, PNG, GIF, WebP, TIFF or BMP")
	case s.format.decode == nil:
		return refuse("unsupported_format", "%s is not read; JPEG, PNG, GIF, WebP, TIFF and BMP are", s.format.name)
	}
	if bytes.Contains(head[:n], []byte(noteBegins)) {
		return sdk.Skip("it was made by this plugin")
	}
	if s.format.name == "webp" && n > 20 && string(head[12:16]) == "VP8X" && head[20]&2 != 0 {
		return refuse("unsupported_format", "it is an animated WebP")
	}
	c, err := s.format.config(s.reader())
	if err != nil {
		return s.failure(err)
	}
	if s.w, s.h = c.Width, c.Height; s.w < 1 || s.h < 1 {
		return refuse("damaged", "it says that it is %d by %d pixels", s.w, s.h)
	}
	if max(s.w, s.h) > maxSide || int64(s.w)*int64(s.h) > cfg.MaxPixels {
		return refuse("too_large", "it is %d by %d pixels, allowed are %d in all and %d a side", s.w, s.h, cfg.MaxPixels, maxSide)
	}
	return nil
}

// memory is how many bytes the picture may take while these sizes are made of it. Decoded and while
// it is decoded, a progressive JPEG without subsampling and a PNG of 16 bits have up to 16 a pixel, and
// a TIFF of one strip is unpacked besides; of the sizes there are two at a time, one of them half
// scaled, turned, and ready to be encoded; a band of the scaler takes 512 a row or column.
func (s *source) memory(sizes []size) int64 {
	pixels, perPixel, largest := int64(s.w)*int64(s.h), int64(16), int64(0)
	if s.format.name == "tiff" {
		perPixel = 32
	}
	for _, size := range sizes {
		largest = max(largest, min(pixels, int64(size.w)*int64(size.h)))
	}
	return pixels*perPixel + largest*20 + int64(s.w+s.h)*512 + 8<<20
}

// reader begins at the start of the file.
func (s *source) reader() io.Reader {
	s.at, s.scans, s.ended = 0, 0, false
	if s.format.name == "tiff" {
		return s // as an io.ReaderAt
	}
	return bufio.NewReaderSize(s, 64<<10)
}

func (s *source) Read(p []byte) (int, error) {
	if p = p[:min(int64(len(p)), s.info.Size()-s.at)]; len(p) == 0 {
		s.ended = true
		return 0, io.EOF
	}
	n, err := s.ReadAt(p, s.at)
	s.at += int64(n)
	s.progress(s.at, s.info.Size())
	if s.scans += bytes.Count(p[:n], []byte{0xff, 0xda}); s.scans > maxScans && s.format.name == "jpeg" {
		s.failed = refuse("too_large", "it is a JPEG of more than %d scans", maxScans)
		return 0, s.failed
	}
	return n, err
}

// ReadAt reads for Read, for the decoder of TIFF, and for what looks into metadata.
func (s *source) ReadAt(p []byte, at int64) (int, error) {
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	n, err := s.file.ReadAt(p, at)
	if err == io.EOF {
		s.ended = true
	} else if err != nil {
		s.failed = tryAgain("cannot_read", "%w", err)
	}
	return n, err
}

// failure says what an error of a decoder means.
func (s *source) failure(err error) error {
	_, badJPEG := errors.AsType[jpeg.UnsupportedError](err)
	_, badPNG := errors.AsType[png.UnsupportedError](err)
	_, badTIFF := errors.AsType[tiff.UnsupportedError](err)
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case s.failed != nil:
		return s.failed
	case s.unchanged() != nil:
		return s.unchanged()
	case badJPEG, badPNG, badTIFF, errors.Is(err, bmp.ErrUnsupported):
		return refuse("unsupported_format", "a %s of a sort that is not read: %w", s.format.name, err)
	case s.ended, errors.Is(err, io.ErrUnexpectedEOF):
		return refuse("truncated", "the file ends in the middle of the picture")
	}
	return refuse("damaged", "not a proper %s: %w", s.format.name, err)
}

// sum is the SHA-256 of the file.
func (s *source) sum() ([]byte, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(s, 0, s.info.Size())); err != nil {
		return nil, s.failure(err)
	}
	return sum.Sum(nil), nil
}

// decode decodes the picture, of an animated one the first.
func (s *source) decode(out *Out) (*raster, error) {
	r := s.reader()
	m, err := s.format.decode(r)
	if err != nil {
		return nil, s.failure(err)
	}
	if s.format.name == "gif" {
		out.Animated = moreFrames(r.(io.ByteReader))
	}
	if err := s.unchanged(); err != nil {
		return nil, err
	}
	if whole := image.Rect(0, 0, s.w, s.h); m.Bounds() != whole { // a frame of a GIF that is smaller than its screen
		screen := image.NewRGBA(whole)
		draw.Draw(screen, m.Bounds(), m, m.Bounds().Min, draw.Src)
		m = screen
	}
	return newRaster(m), nil
}

// moreFrames says whether the next block of a GIF that is no extension is another picture.
func moreFrames(r io.ByteReader) bool {
	next := func() byte {
		b, _ := r.ReadByte() // 0 at the end, which ends all loops
		return b
	}
	block := next()
	for ; block == '!'; block = next() {
		next() // which extension
		for n := next(); n > 0; n = next() {
			for range n {
				next()
			}
		}
	}
	return block == ','
}

// unchanged reports an error if the file is not what it was when it was opened.
func (s *source) unchanged() error {
	now, err := os.Stat(s.file.Name())
	if err == nil && os.SameFile(s.info, now) && now.Size() == s.info.Size() && now.ModTime().Equal(s.info.ModTime()) {
		return nil
	}
	return tryAgain("changed_while_reading", "the file changed while it was read")
}
