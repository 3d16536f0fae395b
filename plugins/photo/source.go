package photo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/gif" // each of these makes its format known to package image, as do those of format.go
	"io"
	"io/fs"
	"os"
	"syscall"

	_ "golang.org/x/image/webp"

	"github.com/ledgerd/ledgerd/plugins/internal/itemfile"
	"github.com/ledgerd/ledgerd/plugins/photo/internal/picture"
	"github.com/ledgerd/ledgerd/sdk"
)

// maxSide is the most pixels a side, that of a JPEG. The memory of the scaler depends on the sides and not on the
// area.
const maxSide = 65_535

// refuse returns a failure that lasts until the picture or the item changes.
func refuse(code, format string, args ...any) error {
	return sdk.Permanent(sdk.Code(code, fmt.Errorf(format, args...)))
}

// source is a picture file.
type source struct {
	file   *os.File
	size   int64
	format string
	w, h   int // by the header
}

// open opens a picture and reads its header. It refuses a picture that is too large before anything is decoded.
func open(ctx context.Context, cfg *Config, path string) (*source, error) {
	f, err := itemfile.Open(path)
	if r, ok := errors.AsType[*itemfile.Refusal](err); ok {
		return nil, refuse(r.Code, "%s", r.Text)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, refuse("not_found", "there is no such file (any more)")
	case err != nil:
		return nil, sdk.Code("cannot_read", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, sdk.Code("cannot_read", err)
	}
	s := &source{file: f, size: info.Size()}
	if err := s.header(ctx, cfg, f); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

// header reads the header. It refuses a picture that is too large.
func (s *source) header(ctx context.Context, cfg *Config, from io.ReaderAt) error {
	if s.size > cfg.MaxBytes {
		return refuse("too_large", "the file has %d bytes, allowed are %d", s.size, cfg.MaxBytes)
	}
	r := &reader{ctx: ctx, from: from, size: s.size, progress: func(int64, int64) {}}
	c, format, err := image.DecodeConfig(r.buffered())
	if err != nil {
		return r.failure(err)
	}
	if c.Width < 1 || c.Height < 1 {
		return refuse("damaged", "damaged: its header has %d by %d pixels", c.Width, c.Height)
	}
	if max(c.Width, c.Height) > maxSide || int64(c.Width)*int64(c.Height) > cfg.MaxPixels {
		return refuse("too_large", "it is %d by %d pixels, allowed are %d in all and %d a side", c.Width, c.Height,
			cfg.MaxPixels, maxSide)
	}
	s.format, s.w, s.h = format, c.Width, c.Height
	return nil
}

// memory estimates the bytes that a picture needs while these sizes are made. Decoding a progressive JPEG without
// subsampling or a PNG of 16 bits needs up to 16 bytes a pixel; a TIFF of one strip is unpacked as well. Two sizes are
// in memory at a time: half scaled, turned, and ready to be encoded. The scaler needs up to 256 bytes a row or column.
func (s *source) memory(sizes []size) int64 {
	pixels, perPixel, largest := int64(s.w)*int64(s.h), int64(16), int64(0)
	if s.format == "tiff" {
		perPixel = 32
	}
	for _, size := range sizes {
		largest = max(largest, min(pixels, int64(size.w)*int64(size.h)))
	}
	return s.size + pixels*perPixel + largest*20 + int64(s.w+s.h)*256 + 8<<20
}

// read reads the whole file, so that the same bytes are hashed and decoded. Its header may be another one by now.
func (s *source) read(ctx context.Context, cfg *Config) ([]byte, error) {
	data := make([]byte, s.size)
	if _, err := io.ReadFull(s.file, data); err != nil {
		return nil, sdk.Code("cannot_read", err)
	}
	if bytes.Contains(data[:min(len(data), noteEnds)], []byte(noteBegins)) {
		return nil, sdk.Skip("it was made by this plugin")
	}
	before := *s
	if err := s.header(ctx, cfg, bytes.NewReader(data)); err != nil {
		return nil, err
	}
	if s.w != before.w || s.h != before.h || s.format != before.format {
		return nil, sdk.Code("changed", errors.New("the file was changed while it was read"))
	}
	return data, nil
}

// decode decodes a picture, or the first frame of an animated GIF.
func decode(ctx context.Context, data []byte, progress func(read, size int64)) (picture.Picture, error) {
	if err := checkTIFF(data); err != nil {
		return nil, refuse("unsupported", "it is %w, which is not read; save it another way", err)
	}
	r := &reader{ctx: ctx, from: bytes.NewReader(data), size: int64(len(data)), progress: progress}
	m, format, err := image.Decode(r.buffered())
	if err != nil {
		return nil, r.failure(err)
	}
	switch format {
	case "webp":
		fullRange(m)
	case "gif":
		c, err := gif.DecodeConfig(bytes.NewReader(data))
		if err != nil {
			return nil, r.failure(err)
		}
		m = onScreen(m, image.Rect(0, 0, c.Width, c.Height))
	}
	return picture.New(m), nil
}

// reader is the input of a decoder. It stops when ctx ends, and records why reading ended.
type reader struct {
	ctx      context.Context
	from     io.ReaderAt
	at, size int64
	progress func(read, size int64)
	err      error // of reading; [io.EOF]: the decoder wanted more than there is
}

// buffered returns a reader with the methods that package image looks for, and with ReadAt, since the decoder of TIFF
// would otherwise copy the file.
func (r *reader) buffered() io.Reader {
	return struct {
		*bufio.Reader
		io.ReaderAt
	}{bufio.NewReader(r), r}
}

func (r *reader) Read(p []byte) (int, error) {
	if p = p[:min(int64(len(p)), r.size-r.at)]; len(p) == 0 {
		r.err = io.EOF
		return 0, r.err
	}
	n, err := r.ReadAt(p, r.at)
	r.at += int64(n)
	r.progress(r.at, r.size)
	return n, err
}

func (r *reader) ReadAt(p []byte, at int64) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.from.ReadAt(p, at)
	if err != nil {
		r.err = err
	}
	return n, err
}

// failure converts an error of a decoder to a failure of the item.
func (r *reader) failure(err error) error {
	switch {
	case r.ctx.Err() != nil:
		return context.Cause(r.ctx)
	case errors.Is(err, image.ErrFormat):
		if name := other(r.head()); name != "" {
			return refuse("unsupported", "it is a picture of the format %s, which is not read; make a JPEG or PNG of it", name)
		}
		return refuse("not_an_image", "it is no JPEG, PNG, GIF, WebP, TIFF or BMP")
	case r.err == io.EOF:
		return refuse("truncated", "the file ends in the middle of the picture")
	case r.err != nil:
		return sdk.Code("cannot_read", r.err)
	}
	head := r.head()
	switch animated := len(head) > 20 && string(head[8:16]) == "WEBPVP8X" && head[20]&2 != 0; {
	case animated:
		return refuse("unsupported", "an animated WebP is not read; make a GIF of it, or a PNG of its first picture")
	case unread(err):
		return refuse("unsupported", "it is of a sort that is not read; save it another way: %w", err)
	}
	return refuse("damaged", "damaged, or made in a way that is not understood: %w", err)
}

// head returns the first bytes of the file.
func (r *reader) head() []byte {
	head := make([]byte, 1<<10)
	n, _ := r.from.ReadAt(head, 0) // less is enough
	return head[:n]
}
