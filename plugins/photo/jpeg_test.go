package photo

import (
	"bytes"
	"image"
	"image/draw"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// endings returns whole JPEGs: baseline and progressive, with restarts, in grey, in CMYK, and with a scan for each
// colour.
func endings(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goroot(t), "src/image/testdata/*.jpeg"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	all := map[string][]byte{"scans": perColour(t)}
	for _, path := range files {
		all[filepath.Base(path)] = get(t, path)
	}
	delete(all, "video-001.progressive.truncated.jpeg") // it has only some scans, and an end mark
	return all
}

// perColour returns a JPEG with a scan for each colour, joined from three grey ones.
func perColour(t *testing.T) (content []byte) {
	t.Helper()
	dir, scan := t.TempDir(), []byte("\xff\xda")
	for i := range 3 {
		grey := image.NewGray(image.Rect(0, 0, 40, 24))
		draw.Draw(grey, grey.Rect, scene(40, 24, uint64(i)), image.Point{}, draw.Src)
		one := bytes.TrimSuffix(get(t, save(t, dir, "grey.jpg", grey)), []byte(endMark))
		at := bytes.Index(one, scan)
		if i == 0 {
			frame := jpegSegment(0xc0, []byte("\x08\x00\x18\x00\x28\x01\x01\x11\x00"))
			colours := jpegSegment(0xc0, []byte("\x08\x00\x18\x00\x28\x03\x01\x11\x00\x02\x11\x00\x03\x11\x00"))
			if content = bytes.Replace(one[:at], frame, colours, 1); len(content) != at+6 {
				t.Fatal("the frame is another one")
			}
		}
		one[at+5] = byte(i + 1) // the component
		content = append(content, one[at:]...)
	}
	return append(content, endMark...)
}

// TestNoEndMark: a JPEG that lacks its end mark, or half of it, is read with a note and has the same pixels. If it
// lacks one more byte, it is truncated.
func TestNoEndMark(t *testing.T) {
	c, dir := config(t), t.TempDir()
	for name, whole := range endings(t) {
		in := plain(put(t, dir, "whole.jpg", whole), "a=64x64")
		in.Format = "png"
		out, err := do(t.Context(), c, in)
		if err != nil || out.Note != "" || !bytes.HasSuffix(whole, []byte(endMark)) {
			t.Errorf("%s: %q %v", name, out.Note, err)
			continue
		}
		want := load(t, out.Files[0].Path)
		for less := 1; less <= 12; less++ {
			in.Path, in.Name = put(t, dir, "cut.jpg", whole[:len(whole)-less]), "{hash}.{ext}"
			c.OutDir = t.TempDir()
			out, err := do(t.Context(), c, in)
			switch {
			case less > len(endMark):
				if code := codeOf(err); code != "truncated" {
					t.Errorf("%s less %d bytes: %q %v", name, less, code, err)
				}
			case err != nil || out.Note != "the file lacks its end mark (FF D9), and nothing else":
				t.Errorf("%s less %d bytes: note %q, %v", name, less, out.Note, err)
			default:
				if d := cmp.Diff(want, load(t, out.Files[0].Path)); d != "" {
					t.Errorf("%s less %d bytes: %s", name, less, d)
				}
			}
		}
	}
}

// TestCutBetweenScans: a JPEG cut between two scans is truncated. The decoder would make a picture without details or
// colours of it.
func TestCutBetweenScans(t *testing.T) {
	c, dir := config(t), t.TempDir()
	for name, whole := range endings(t) {
		var cuts []int
		for at := range len(whole) - len(endMark) {
			if whole[at] == 0xff && slices.Contains([]byte{0xc4, 0xda, 0xdd}, whole[at+1]) {
				cuts = append(cuts, at, at+1, at+2, at+4, at+14)
			}
		}
		if len(cuts) < 5 {
			t.Errorf("%s: %d cuts", name, len(cuts))
		}
		for _, at := range cuts {
			_, err := do(t.Context(), c, plain(put(t, dir, "cut.jpg", whole[:at]), "a=20x20"))
			if code := codeOf(err); code != "truncated" {
				t.Errorf("%s, cut at %d of %d: %q %v", name, at, len(whole), code, err)
			}
		}
	}
}
