//go:build unix

package photo

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/image/bmp"
	xdraw "golang.org/x/image/draw"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/photo/internal/picture"
)

// zeros returns n zero bytes, compressed.
func zeros(t testing.TB, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zlib.NewWriterLevel(&b, zlib.BestSpeed)
	must.OK(t, err)
	for range n >> 20 {
		must.Do(t)(z.Write(make([]byte, 1<<20)))
	}
	must.OK(t, z.Close())
	return b.Bytes()
}

// scans returns a progressive JPEG with n additional scans.
func scans(t testing.TB, n int) []byte {
	t.Helper()
	content := get(t, filepath.Join(goroot(t), "src/image/testdata/video-001.progressive.jpeg"))
	from := bytes.Index(content, []byte("\xff\xda"))
	to := from + 2 + bytes.Index(content[from+2:], []byte("\xff\xc4"))
	return slices.Concat(content[:to], bytes.Repeat(content[from:to], n), content[to:])
}

func goroot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	must.OK(t, err)
	return strings.TrimSpace(string(out))
}

// TestReplacedByABomb: a file that is overwritten while it waits for memory is judged by what is decoded.
func TestReplacedByABomb(t *testing.T) {
	c := config(t)
	path := save(t, t.TempDir(), "a.png", scene(16, 16, 1))
	content := get(t, path)
	for name, tt := range map[string]struct {
		now  []byte
		code string
	}{
		"huge":  {pngHeader(60_000, 60_000), "too_large"},
		"other": {pngHeader(17, 16), "the file was changed while it was read"},
	} {
		must.OK(t, os.WriteFile(path, content, 0o600))
		src, err := open(t.Context(), c, path)
		must.OK(t, err)
		copy(content, tt.now)
		must.OK(t, os.WriteFile(path, content, 0o600))
		if _, err = src.read(t.Context(), c); codeOf(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
		src.file.Close()
		content = get(t, save(t, t.TempDir(), "a.png", scene(16, 16, 1)))
	}
}

// TestBombs: a file that claims to be huge, or becomes huge when it is unpacked, ends soon and needs little memory.
func TestBombs(t *testing.T) {
	dir := t.TempDir()
	large := zeros(t, 128<<20)
	jpegs := get(t, save(t, dir, "a.jpg", scene(16, 16, 1)))
	hugeJPEG := bytes.Clone(jpegs)
	copy(hugeJPEG[bytes.Index(jpegs, []byte("\xff\xc0"))+5:], "\xff\xff\xff\xff")
	var animation, wide bytes.Buffer
	frames := &gif.GIF{}
	for range 2000 {
		frames.Image = append(frames.Image, image.NewPaletted(image.Rect(0, 0, 50, 50), color.Palette{color.Black}))
		frames.Delay = append(frames.Delay, 1)
	}
	must.OK(t, errors.Join(gif.EncodeAll(&animation, frames),
		bmp.Encode(&wide, image.NewGray(image.Rect(0, 0, 10, 10)))))
	wideGIF, wideBMP := bytes.Clone(animation.Bytes()), wide.Bytes()
	copy(wideGIF[6:], "\xff\xff\xff\xff")
	binary.LittleEndian.PutUint32(wideBMP[18:], 1<<20)
	binary.LittleEndian.PutUint32(wideBMP[22:], 1<<20)
	webp := append([]byte("RIFF\x1a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00"), 0, 0, 0, 0, 0xff, 0x3f, 0, 0xff, 0x3f, 0, 0, 0,
		0, 0)
	trailer := make([]byte, 16<<20)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(trailer) // never fails
	for name, tt := range map[string]struct {
		content []byte
		code    string // "" is done
	}{
		"PNG, huge":           {append(pngHeader(100_000, 100_000), pngChunk("IDAT", large)...), "too_large"},
		"PNG, long":           {append(pngHeader(1, 60_000_000), pngChunk("IDAT", large)...), "too_large"},
		"PNG, more than rows": {slices.Concat(pngHeader(10, 10), pngChunk("IDAT", large), pngChunk("IEND", nil)), "damaged"},
		"JPEG, huge":          {hugeJPEG, "too_large"},
		"JPEG, some scans":    {scans(t, 50), ""},
		"GIF, huge":           {wideGIF, "too_large"},
		"GIF, frames":         {animation.Bytes(), ""},
		"BMP, huge":           {wideBMP, "too_large"},
		"WebP, huge":          {webp, "too_large"},
		"JPEG, long trailer":  {append(bytes.Clone(jpegs), trailer...), ""}, // as from a phone, with a video in it
		"TIFF, strip":         {packedTIFF(10, 10, 10, 10, large), ""},
		"TIFF, tile":          {packedTIFF(10, 10, 60_000, 60_000, large), "damaged"},
		"TIFF, huge":          {packedTIFF(100_000, 100_000, 100_000, 100_000, large), "too_large"},
	} {
		c, in := config(t), plain(put(t, dir, "bomb", tt.content), "a=64x64")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, err := do(t.Context(), c, in)
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if got := codeOf(err); got != tt.code {
			t.Errorf("%s: %q, want %q: %v", name, got, tt.code, err)
		}
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 64 || took > time.Minute {
			t.Errorf("%s: takes %d MiB and %s", name, mib, took)
		}
	}
}

// packedTIFF returns a gray TIFF of w by h pixels with one tile. The tile may have another size.
func packedTIFF(w, h, tileW, tileH uint32, packed []byte) []byte {
	le := binary.LittleEndian
	entries := [][2]uint32{{256, w}, {257, h}, {258, 8}, {259, 8}, {262, 1}, {322, tileW}, {323, tileH}, {324, 0},
		{325, uint32(len(packed))}}
	b := le.AppendUint16(le.AppendUint32([]byte("II*\x00"), 8), uint16(len(entries)))
	for _, e := range entries {
		if e[0] == 324 {
			e[1] = uint32(8 + 2 + 12*len(entries) + 4)
		}
		b = le.AppendUint32(le.AppendUint32(le.AppendUint16(le.AppendUint16(b, uint16(e[0])), 4), 1), e[1])
	}
	return append(le.AppendUint32(b, 0), packed...)
}

// saying has a part of the text of each error, by its code.
var saying = map[string]string{
	"unsupported": "not read", "not_an_image": "it is no JPEG", "damaged": "damaged", "truncated": "ends in the middle",
	"too_large": "allowed are",
	"":          "it was made by this plugin", // or no error
}

// codeOf returns the code that ledgerd would record.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	for code, text := range saying {
		if strings.Contains(err.Error(), text) {
			return code
		}
	}
	return err.Error()
}

// TestScans: a small JPEG may keep the decoder busy for long, but not beyond the end of its context.
func TestScans(t *testing.T) {
	c, in := config(t), plain(put(t, t.TempDir(), "scans.jpg", scans(t, 100_000)), "a=64x64")
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := do(ctx, c, in); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s", took)
	}
}

// TestCut: a picture that is cut off anywhere fails as truncated, without a panic.
func TestCut(t *testing.T) {
	dir, c := t.TempDir(), config(t)
	for name, path := range sampled(t) {
		content := get(t, path)
		for _, part := range []float64{0.1, 0.3, 0.5, 0.8} {
			_, err := do(t.Context(), c, plain(put(t, dir, "cut", content[:int(part*float64(len(content)))]), "a=20x20"))
			if code := codeOf(err); code != "truncated" {
				t.Errorf("%s, cut at %.1f: %q %v", name, part, code, err)
			}
		}
	}
}

// sampled returns a picture of each format, from the tests of Go and x/image.
func sampled(t testing.TB) map[string]string {
	t.Helper()
	std, extra := filepath.Join(goroot(t), "src/image/testdata"), ximage(t)
	return map[string]string{
		"jpeg": filepath.Join(std, "video-001.jpeg"), "progressive jpeg": filepath.Join(std, "video-001.progressive.jpeg"),
		"png": filepath.Join(std, "video-001.png"), "gif": filepath.Join(std, "video-001.gif"),
		"webp": filepath.Join(extra, "video-001.lossy.webp"), "lossless webp": filepath.Join(extra,
			"yellow_rose.lossless.webp"),
		"tiff": filepath.Join(extra, "video-001.tiff"), "bmp": filepath.Join(extra, "video-001.bmp"),
	}
}

func ximage(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/image").Output()
	must.OK(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "testdata")
}

// TestPublicPictures works all pictures of the tests of Go and x/image, and compares the results with the reference.
func TestPublicPictures(t *testing.T) {
	bad := map[string]string{"invalid-palette-ref.tiff": "damaged",
		"large-huffman-index.lossless.webp.bz2": "not_an_image"}
	c, n := config(t), 0
	for _, dir := range []string{filepath.Join(goroot(t), "src/image/testdata"), ximage(t)} {
		files, err := os.ReadDir(dir)
		must.OK(t, err)
		for _, f := range files {
			in := plain(filepath.Join(dir, f.Name()), "a=64x64")
			in.Format, in.Name = "png", "{hash}.{ext}"
			out, err := do(t.Context(), c, in)
			n++
			if code := codeOf(err); code != bad[f.Name()] {
				t.Errorf("%s: %q %v", f.Name(), code, err)
			}
			if err != nil {
				continue
			}
			from, got := load(t, in.Path), load(t, out.Files[0].Path)
			if p, ok := from.(*image.YCbCr); ok && out.Format == "webp" {
				from = struct{ image.Image }{video{p}} // only with At, so that x/image takes the colours of video
			}
			w, h := got.Bounds().Dx(), got.Bounds().Dy()
			if o, ok := from.(interface{ Opaque() bool }); w < 16 || h < 16 || ok && !o.Opaque() {
				continue
			}
			mean, worst := difference(reference(from, from.Bounds(), image.Pt(w, h), xdraw.CatmullRom), got)
			if mean > 1 || worst > 2.5 {
				t.Errorf("%s: brightness differs by %.4f, a block by %.4f, want 1 and 2.5 at most", f.Name(), mean, worst)
			}
		}
	}
	if n < 100 {
		t.Errorf("there are only %d pictures", n)
	}
}

// TestKilled: whenever the plugin is killed, each file is either missing or complete. The next attempt removes the
// temporary files.
func TestKilled(t *testing.T) {
	self, err := os.Executable()
	must.OK(t, err)
	path := save(t, t.TempDir(), "a.jpg", scene(1000, 800, 3))
	whole := config(t)
	must.Do(t)(do(t.Context(), whole, killedPayload(path)))
	for round := range 2 {
		c := config(t)
		cmd := exec.Command(self, "resize", path, c.OutDir)
		must.OK(t, cmd.Start())
		tick := time.NewTicker(time.Millisecond)
		for temps := []string(nil); len(temps) == 0; <-tick.C { // until it writes the first or second file
			temps, err = filepath.Glob(filepath.Join(c.OutDir, ".*.png.1.tmp"))
			done, _ := filepath.Glob(filepath.Join(c.OutDir, "*.png"))
			if err != nil || len(done) == 3 {
				t.Fatalf("it has ended before it was killed: %v", err)
			}
			if len(done) < round {
				temps = nil
			}
		}
		tick.Stop()
		_ = cmd.Process.Kill() // Wait reports it
		if err := cmd.Wait(); err == nil {
			t.Fatal("it has ended before it was killed")
		}
		in := killedPayload(path)
		for i, s := range []string{"large", "medium", "small"} {
			name := "a-" + s + ".png"
			content, err := os.ReadFile(filepath.Join(c.OutDir, name))
			if err == nil && !bytes.Equal(content, get(t, filepath.Join(whole.OutDir, name))) {
				t.Errorf("%s is half a file", name)
			}
			if i >= round+1 && err == nil {
				t.Errorf("%s is there before its turn", name)
			}
		}
		next := []int64{2, 28_000_001}[round] // the latter is an attempt after a restore of the ledger
		must.Do(t)(resize(t.Context(), c, in, next, func(int64, int64) {}))
		entries, err := os.ReadDir(c.OutDir)
		if err != nil || len(entries) != 3 {
			t.Errorf("%d files after the next attempt: %v", len(entries), err)
		}
	}
}

// TestStops: work ends soon after its context, at any point, with the cause.
func TestStops(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	in := killedPayload(save(t, t.TempDir(), "a.jpg", scene(1000, 800, 3)))
	cause := errors.New("lease lost")
	for _, after := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		c := config(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := time.AfterFunc(after, func() { cancel(cause) })
		_, err := do(ctx, c, in)
		stop.Stop()
		if !errors.Is(err, cause) {
			t.Errorf("after %s: %v", after, err)
		}
		if left, _ := filepath.Glob(filepath.Join(c.OutDir, ".*")); len(left) > 0 {
			t.Errorf("after %s: %v is left", after, left)
		}
		cancel(nil)
	}
}

// FuzzPicture: for any bytes, all steps but the writing succeed or fail with a known code, without a panic.
func FuzzPicture(f *testing.F) {
	for _, path := range sampled(f) {
		f.Add(get(f, path))
	}
	j := get(f, save(f, f.TempDir(), "a.jpg", scene(20, 10, 1)))
	f.Add(withSegment(j, exif(binary.LittleEndian, 6)))
	f.Add(tiffOf(scene(20, 10, 1), 8))
	f.Add([]byte("RIFF\xba000WEBPVP8 0000100")) // of 0 by 0 pixels
	f.Add(slices.Concat(pngHeader(1, 1), pngChunk("eXIf", exifTIFF(binary.BigEndian, 3))))
	c := config(f)
	c.MaxBytes, c.MaxPixels = 1<<20, 1<<14
	path := filepath.Join(f.TempDir(), "a")
	f.Fuzz(func(t *testing.T, content []byte) {
		must.OK(t, os.WriteFile(path, content, 0o600))
		err := func() error {
			src, err := open(t.Context(), c, path)
			if err != nil {
				return err
			}
			defer src.file.Close()
			data, err := src.read(t.Context(), c)
			if err != nil {
				return err
			}
			pic, err := decode(t.Context(), data, func(int64, int64) {})
			if err != nil {
				return err
			}
			to, turn := &target{ctx: t.Context(), in: plain(path)}, orientation(src.format, data)
			return each(t.Context(), pic, parseSizes([]string{"a=20x20", "b=8x8:fill", "c=5x5:crop"}), turn,
				func(_ int, scaled picture.Picture) error {
					return to.encode(io.Discard, scaled)
				})
		}()
		if _, ok := saying[codeOf(err)]; !ok {
			t.Error(err)
		}
	})
}
