//go:build unix

package photo

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Conformance(t, Plugin(), sdktest.Options{Config: map[string]any{"out_dir": t.TempDir()}})
}

// TestProcess works pictures in a process as ledgerd starts it.
func TestProcess(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "made", "here")
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: map[string]any{"out_dir": out, "max_bytes": 1 << 20,
		"max_pixels": 1_000_000}})
	good := save(t, dir, "good.jpg", scene(400, 300, 1))
	fifo := filepath.Join(dir, "pipe.jpg")
	must.OK(t, syscall.Mkfifo(fifo, 0o600))
	link, linked := filepath.Join(dir, "link.jpg"), "not_found"
	must.OK(t, os.Symlink("/nothing", link))
	if runtime.GOOS == "linux" && os.Getuid() == 0 { // only root can make a link of another user
		must.OK(t, os.Lchown(link, 65534, -1))
		linked = "foreign_link"
	}
	put(t, out, "good-mine.jpg", []byte("a file of somebody else"))
	put(t, out, "file", nil)
	must.OK(t, os.Mkdir(filepath.Join(out, "good-dir.jpg"), 0o700))
	for name, tt := range map[string]struct {
		set     payload
		outcome string
		code    string
		final   bool
	}{
		"good":   {payload{"path": good}, "done", "", false},
		"gone":   {payload{"path": filepath.Join(dir, "gone.jpg")}, "failed", "not_found", true},
		"folder": {payload{"path": dir}, "failed", "not_a_file", true},
		"pipe":   {payload{"path": fifo}, "failed", "not_a_file", true},
		"link":   {payload{"path": link}, "failed", linked, true},
		"text":   {payload{"path": put(t, dir, "text.jpg", []byte("not a picture"))}, "failed", "not_an_image", true},
		"empty":  {payload{"path": put(t, dir, "empty.jpg", nil)}, "failed", "not_an_image", true},
		"HEIC": {payload{"path": put(t, dir, "a.heic", []byte("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"))},
			"failed", "unsupported", true},
		"12 bits": {payload{"path": put(t, dir, "12.jpg", bytes.Replace(get(t, good), []byte("\xff\xc0\x00\x11\x08"),
			[]byte("\xff\xc0\x00\x11\x0c"), 1))}, "failed", "unsupported", true},
		"animation": {payload{"path": put(t, dir, "a.webp",
			[]byte("RIFF\x1a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02\x00\x00\x00\x09\x00\x00\x09\x00\x00"))}, "failed",
			"unsupported", true},
		"cut":         {payload{"path": put(t, dir, "cut.jpg", get(t, good)[:9000])}, "failed", "truncated", true},
		"many pixels": {payload{"path": put(t, dir, "large.png", pngHeader(1001, 1000))}, "failed", "too_large", true},
		"many bytes": {payload{"path": put(t, dir, "long.jpg", append(get(t, good), make([]byte, 1<<20)...))}, "failed",
			"too_large", true},
		"name up":       {payload{"path": good, "name": "../{stem}-{size}.{ext}"}, "failed", "bad_name", true},
		"name absolute": {payload{"path": good, "name": "/tmp/{stem}-{size}.{ext}"}, "failed", "bad_name", true},
		"name brace":    {payload{"path": good, "name": "{stem}-{size}-{date}.{ext}"}, "failed", "payload", true},
		"name twice":    {payload{"path": good, "name": "{stem}.{ext}"}, "failed", "bad_name", true},
		"name long":     {payload{"path": good, "name": strings.Repeat("x", 200) + "{size}"}, "failed", "bad_name", true},
		"taken":         {payload{"path": good, "sizes": []string{"mine=9x9"}}, "failed", "name_taken", true},
		"taken, folder": {payload{"path": good, "sizes": []string{"dir=9x9"}}, "failed", "name_taken", true},
		"no folder":     {payload{"path": good, "name": "file/{size}.{ext}"}, "failed", "cannot_write", false},
		"no size":       {payload{"path": good, "sizes": []string{"large"}}, "failed", "payload", true},
		"no pixels":     {payload{"path": good, "sizes": []string{"large=0x10"}}, "failed", "payload", true},
		"no quality":    {payload{"path": good, "quality": 101}, "failed", "payload", true},
	} {
		r := h.Run(sdktest.Task{Payload: tt.set})
		if r.Outcome != tt.outcome || r.Code != tt.code || r.Final != tt.final {
			t.Errorf("%s: %s %s (%s), final %v; want %s %s, final %v", name, r.Outcome, r.Code, r.Error, r.Final, tt.outcome,
				tt.code, tt.final)
		}
		if tt.outcome == "done" && len(r.Progress) == 0 {
			t.Errorf("%s: no progress", name)
		}
	}
	if got := string(get(t, filepath.Join(out, "good-mine.jpg"))); got != "a file of somebody else" {
		t.Errorf("a file of somebody else is now %q", got)
	}
	if r := h.Run(sdktest.Task{Payload: payload{"path": good}}); r.Outcome != "skipped" {
		t.Errorf("done once more: %+v", r)
	}
	if r := h.Run(sdktest.Task{Payload: payload{"path": save(t, dir, "big.jpg", scene(1000, 900, 1)), "quality": 84},
		Fault: sdktest.Cancel}); r.Outcome != "cancelled" {
		t.Errorf("cancelled: %+v", r)
	}
}

// TestAnimatedWebP: the error about an animated WebP names the next step, since such files are common.
func TestAnimatedWebP(t *testing.T) {
	h, path := sdktest.New(t, Plugin(), sdktest.Options{Config: *config(t)}), filepath.Join(t.TempDir(), "a.webp")
	for flags, want := range map[string]string{"\x02": "unsupported: an animated WebP is not read",
		"\x00": "damaged: damaged, or made in a way"} {
		must.OK(t, os.WriteFile(path, []byte("RIFF\x1a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00"+flags+
			"\x00\x00\x00\x09\x00\x00\x09\x00\x00ABCD\x02\x00\x00\x00xy"), 0o600))
		if r := h.Run(sdktest.Task{Payload: payload{"path": path}}); !strings.HasPrefix(r.Code+": "+r.Error, want) {
			t.Errorf("%q: %s %s", flags, r.Code, r.Error)
		}
	}
}

// pngHeader returns the start of a PNG of this size.
func pngHeader(w, h uint32) []byte {
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)
	return append([]byte("\x89PNG\r\n\x1a\n"), pngChunk("IHDR", append(header, 8, 0, 0, 0, 0))...)
}

// TestConfigIsChecked: a relative folder is refused, since it depends on where the plugin was started.
func TestConfigIsChecked(t *testing.T) {
	if err := (&Config{OutDir: "thumbs"}).Validate(); err == nil || !strings.Contains(err.Error(), "out_dir") {
		t.Errorf("a relative out_dir: %v", err)
	}
}

// isSkip reports whether the item was skipped because all files are up to date.
func isSkip(err error) bool { return err != nil && strings.Contains(err.Error(), "up to date") }

// TestUpToDate: files made from the same pixels with the same settings stay as they are; their time does not count.
// All other files of this picture are made again.
func TestUpToDate(t *testing.T) {
	dir, c := t.TempDir(), config(t)
	in := plain(save(t, dir, "a.jpg", scene(300, 200, 1)), "large=100x100", "small=20x20:fill")
	run := func(want string) Out {
		t.Helper()
		out, err := do(t.Context(), c, in)
		got := ""
		for _, f := range out.Files {
			if f.UpToDate {
				got += "-"
			} else {
				got += "+"
			}
		}
		if err != nil && !isSkip(err) || got != want || isSkip(err) != (want == "--") {
			t.Errorf("made %s, want %s: %v", got, want, err)
		}
		return out
	}
	out := run("++")
	content := [][]byte{get(t, out.Files[0].Path), get(t, out.Files[1].Path)}
	run("--")
	must.OK(t, os.Chtimes(in.Path, time.Unix(1, 0), time.Unix(1, 0)))
	run("--") // the same pixels
	must.OK(t, os.Remove(out.Files[1].Path))
	run("-+")
	if !bytes.Equal(get(t, out.Files[1].Path), content[1]) {
		t.Error("made alone, a file is another one")
	}
	in.Quality = 50
	run("++")
	run("--")
	in.Quality = 85
	run("++")
	save(t, dir, "a.jpg", scene(300, 200, 2))
	run("++")
	save(t, dir, "a.jpg", scene(300, 200, 1))
	run("++")
	if !bytes.Equal(get(t, out.Files[0].Path), content[0]) {
		t.Error("made again of the same pixels by the same settings, a file is another one")
	}
	for i, name := range []string{"{folder}/{size}/{stem}.{ext}", "{hash}.{size}"} {
		in.Name = name
		if f := run("++").Files[0]; !bytes.Equal(get(t, f.Path), content[0]) || strings.Contains(f.Path, "{") ||
			(i == 0) != strings.HasSuffix(f.Path, filepath.Base(dir)+"/large/a.jpg") {
			t.Errorf("%s is %s", name, f.Path)
		}
	}
	in.Format = "png"
	run("++") // the files have the same names
	run("--")
	in.Format = "jpeg"
	// The same picture under another path counts as another one, and files of the plugin are no originals.
	in.Name = "{stem}-{size}.{ext}"
	in.Path = save(t, t.TempDir(), "a.jpg", scene(300, 200, 1))
	if _, err := do(t.Context(), c, in); err == nil || !strings.Contains(err.Error(), "not made of this picture") {
		t.Errorf("another picture of that name: %v", err)
	}
	in.Path = out.Files[0].Path
	if out, err := do(t.Context(), c, in); err == nil || !strings.Contains(err.Error(), "made by this plugin") ||
		out.Files != nil {
		t.Errorf("what was made is made smaller: %v", err)
	}
}

// TestTaken: two pictures with the same name may be worked at the same time. The second one does not overwrite the
// files of the first.
func TestTaken(t *testing.T) {
	c := config(t)
	first := plain(save(t, t.TempDir(), "a.jpg", scene(300, 200, 1)), "x=50x50")
	second := plain(save(t, t.TempDir(), "a.jpg", scene(300, 200, 2)), "x=50x50")
	var made []byte
	_, err := resize(t.Context(), c, second, 1, func(int64, int64) { // called while it is decoded
		if made == nil {
			out, err := do(t.Context(), c, first)
			must.OK(t, err)
			made = get(t, out.Files[0].Path)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "not made of this picture") {
		t.Errorf("the second picture: %v", err)
	}
	if entries, err := os.ReadDir(c.OutDir); err != nil || len(entries) != 1 {
		t.Errorf("%d files: %v", len(entries), err)
	}
	if !bytes.Equal(get(t, filepath.Join(c.OutDir, "a-x.jpg")), made) {
		t.Error("the first picture was written over")
	}
}

// TestStripped: all metadata is removed.
func TestStripped(t *testing.T) {
	dir := t.TempDir()
	m := scene(60, 40, 1)
	jpegs, pngs := get(t, save(t, dir, "a.jpg", m)), get(t, save(t, dir, "a.png", m))
	profile := []byte("ICC_PROFILE\x00\x01\x01secret-profile")
	withAll := map[string][]byte{
		"b.jpg": withSegment(jpegs, exif(binary.BigEndian, 1), jpegSegment(0xe2, profile),
			jpegSegment(0xfe, []byte("secret-comment"))),
		"b.png": slices.Concat(pngs[:33], pngChunk("eXIf", exifTIFF(binary.BigEndian, 1)),
			pngChunk("tEXt", []byte("Comment\x00secret-comment")), pngs[33:]),
	}
	for name, content := range withAll {
		for _, format := range []string{"jpeg", "png"} {
			in := plain(put(t, dir, name, content), "x=30x30")
			in.Format = format
			out, err := do(t.Context(), config(t), in)
			must.OK(t, err)
			if bytes.Contains(get(t, out.Files[0].Path), []byte("secret")) {
				t.Errorf("%s as %s: there are secrets in it", name, format)
			}
			load(t, out.Files[0].Path) // the checksums of a PNG must be right
		}
	}
}

// TestTransparent: transparent pixels stay so in a PNG and become white in a JPEG. Gray stays gray.
func TestTransparent(t *testing.T) {
	dir, c := t.TempDir(), config(t)
	m := image.NewNRGBA(image.Rect(0, 0, 40, 40))
	for i := range m.Pix {
		m.Pix[i] = []byte{200, 0, 0, 0}[i%4]
		if i < len(m.Pix)/2 && i%4 == 3 {
			m.Pix[i] = 255
		}
	}
	for format, bottom := range map[string]color.NRGBA{"png": {0, 0, 0, 0}, "jpeg": {255, 255, 255, 255}} {
		in := plain(save(t, dir, "half.png", m), "x=20x20")
		in.Format = format
		out, err := do(t.Context(), c, in)
		must.OK(t, err)
		got := load(t, out.Files[0].Path)
		for y, want := range map[int]color.NRGBA{3: {200, 0, 0, 255}, 17: bottom} {
			c := color.NRGBAModel.Convert(got.At(10, y)).(color.NRGBA)
			if d := cmp.Diff(want, c, cmp.Comparer(func(a, b uint8) bool { return max(a, b)-min(a, b) < 4 })); d != "" {
				t.Errorf("%s, line %d: %s", format, y, d)
			}
		}
	}
	gray := image.NewGray(image.Rect(0, 0, 40, 40))
	out, err := do(t.Context(), c, plain(save(t, dir, "gray.png", gray), "x=20x20"))
	must.OK(t, err)
	if m := load(t, out.Files[0].Path); m.ColorModel() != color.GrayModel {
		t.Errorf("gray became %T", m)
	}
}

// TestMemory: all allocations for a picture together are less than its estimate. So is the memory in use at any time.
func TestMemory(t *testing.T) {
	dir, c := t.TempDir(), config(t)
	small := scene(900, 600, 1)
	deep := image.NewNRGBA64(small.Rect)
	for i := range deep.Pix {
		deep.Pix[i] = small.Pix[i/2]
	}
	turnedJPEG := put(t, dir, "turned.jpg", withSegment(get(t, save(t, dir, "plain.jpg", small)),
		exif(binary.BigEndian, 6)))
	for _, path := range []string{turnedJPEG, save(t, dir, "a.png", small), save(t, dir, "deep.png", deep),
		put(t, dir, "b.tiff", tiffOf(small, 7))} {
		for format, sizes := range map[string][]string{"png": {"whole=9999x9999"}, "jpeg": {"large=700x700", "medium=300x300",
			"thumb=90x90:fill"}} {
			in := plain(path, sizes...)
			in.Format = format
			src, err := open(t.Context(), c, path)
			must.OK(t, err)
			src.file.Close()
			most := src.memory(parseSizes(in.Sizes))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			must.Do(t)(do(t.Context(), c, in))
			runtime.ReadMemStats(&after)
			got := int64(after.TotalAlloc - before.TotalAlloc)
			t.Logf("%s, %s as %s: %d MiB of %d", filepath.Base(path), sizes[0], format, got>>20, most>>20)
			if got > most {
				t.Errorf("%s, %s as %s: allocates %d bytes, counts for %d", filepath.Base(path), sizes[0], format, got, most)
			}
		}
	}
}
