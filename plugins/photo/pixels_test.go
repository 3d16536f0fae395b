package photo

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"math"
	"path/filepath"
	"slices"
	"testing"

	xdraw "golang.org/x/image/draw"

	"github.com/ledgerd/ledgerd/internal/must"
)

func brightness(c color.Color) float64 {
	r, g, b, _ := c.RGBA()
	return (0.299*float64(r) + 0.587*float64(g) + 0.114*float64(b)) / 257
}

// reference is a part of a picture as x/image scales it in one step, without planes, rows or a size between.
func reference(original image.Image, part image.Rectangle, to image.Point, scaler xdraw.Scaler) image.Image {
	m := image.NewRGBA(image.Rectangle{Max: to})
	scaler.Scale(m, m.Rect, original, part, draw.Src, nil)
	return m
}

// difference is the mean difference of brightness, of 0 to 255, between two pictures of one size: of all pixels, and of
// the block of 8 by 8 pixels that differs most.
func difference(a, b image.Image) (mean, worst float64) {
	all := a.Bounds()
	for top := 0; top < all.Max.Y; top += 8 {
		for left := 0; left < all.Max.X; left += 8 {
			block, sum := image.Rect(left, top, left+8, top+8).Intersect(all), 0.0
			for y := top; y < block.Max.Y; y++ {
				for x := left; x < block.Max.X; x++ {
					sum += math.Abs(brightness(a.At(x, y)) - brightness(b.At(x, y)))
				}
			}
			mean += sum / float64(all.Dx()*all.Dy())
			worst = max(worst, sum/float64(block.Dx()*block.Dy()))
		}
	}
	return mean, worst
}

// TestSimilar: the results are similar to those of one step: in all modes, for large, small and odd pictures, for
// planes and pixels, and if a size is made from a larger one. A picture that is moved by one pixel or made of the
// nearest pixels is not.
func TestSimilar(t *testing.T) {
	dir := t.TempDir()
	sizes := []string{"large=320x320", "small=75x75", "wide=200x60:fill", "tall=60x201:fill", "piece=222x111:crop",
		"icon=48x48:fill"}
	for i, in := range []image.Point{{703, 501}, {450, 650}, {321, 240}} {
		original := scene(in.X, in.Y, uint64(i))
		for _, name := range []string{"a.jpg", "a.png"} {
			c := config(t)
			path := save(t, dir, fmt.Sprint(i, name), original)
			payload := plain(path, sizes...)
			payload.Format, payload.Quality = "png", 100
			out, err := do(t.Context(), c, payload)
			must.OK(t, err)
			from := load(t, path) // a JPEG differs slightly from the original
			for k, f := range out.Files {
				s := parseSizes(payload.Sizes)[k]
				part, to := s.of(in.X, in.Y)
				if f.Width != to.X || f.Height != to.Y {
					t.Errorf("%s %s: %d by %d, want %v", path, f.Size, f.Width, f.Height, to)
				}
				got := load(t, f.Path)
				mean, worst := difference(reference(from, part, to, xdraw.CatmullRom), got)
				t.Logf("%v of %s, %-6s %v: %.4f, a block %.4f", in, name, f.Size, to, mean, worst)
				if mean > 1 || worst > 2.5 {
					t.Errorf("%v of %s, %s: brightness differs by %.4f, a block by %.4f, want 1 and 2.5 at most", in, name, f.Size,
						mean, worst)
				}
				moved := part.Add(image.Pt(1, 1)).Intersect(from.Bounds())
				bad := map[string]image.Image{"moved by a pixel": reference(from, moved, to, xdraw.CatmullRom)}
				if part.Size() != to {
					bad["of nearest pixels"] = reference(from, part, to, xdraw.NearestNeighbor)
				}
				for name, m := range bad {
					if mean, worst := difference(m, got); mean < 1 || worst < 2.5 {
						t.Errorf("%v, %s, %s: brightness differs by only %.4f, a block by %.4f", in, f.Size, name, mean, worst)
					}
				}
			}
		}
	}
}

func TestBoxes(t *testing.T) {
	for _, tt := range []struct {
		size string
		w, h int
		part image.Rectangle
		to   image.Point
	}{
		{"a=100x100", 400, 200, image.Rect(0, 0, 400, 200), image.Pt(100, 50)},
		{"a=100x100", 200, 400, image.Rect(0, 0, 200, 400), image.Pt(50, 100)},
		{"a=100x100", 90, 80, image.Rect(0, 0, 90, 80), image.Pt(90, 80)},
		{"a=100x100", 90, 200, image.Rect(0, 0, 90, 200), image.Pt(45, 100)},
		{"a=100x100", 50_000, 1, image.Rect(0, 0, 50_000, 1), image.Pt(100, 1)},
		{"a=100x100:fill", 400, 200, image.Rect(100, 0, 300, 200), image.Pt(100, 100)},
		{"a=100x50:fill", 400, 400, image.Rect(0, 100, 400, 300), image.Pt(100, 50)},
		{"a=200x200:fill", 300, 100, image.Rect(100, 0, 200, 100), image.Pt(100, 100)},
		{"a=100x100:fill", 1, 50_000, image.Rect(0, 24_999, 1, 25_000), image.Pt(1, 1)},
		{"a=100x100:crop", 400, 50, image.Rect(150, 0, 250, 50), image.Pt(100, 50)},
	} {
		s := parseSizes([]string{tt.size})[0]
		if part, to := s.of(tt.w, tt.h); part != tt.part || to != tt.to {
			t.Errorf("%s of %d by %d: %v as %v, want %v as %v", tt.size, tt.w, tt.h, part, to, tt.part, tt.to)
		}
	}
}

// corners are the colours of the corners of an upright picture, clockwise from the top left.
var corners = []color.RGBA{{230, 20, 20, 255}, {20, 230, 20, 255}, {20, 20, 230, 255}, {230, 230, 20, 255}}

func cornered(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for i, c := range corners {
		x, y := []int{0, w / 2, w / 2, 0}[i], []int{0, 0, h / 2, h / 2}[i]
		draw.Draw(m, image.Rect(x, y, x+(w+1)/2, y+(h+1)/2), image.NewUniform(c), image.Point{}, draw.Src)
	}
	return m
}

// TestTurns tests each number of EXIF on pixels: where the four corners are afterwards. The table is EXIF's
// definition, by the positions of row 0 and column 0 of the file.
func TestTurns(t *testing.T) {
	// The corners of the file that are then top left, top right, bottom right and bottom left.
	where := map[uint16][4]int{
		1: {0, 1, 2, 3}, 2: {1, 0, 3, 2}, 3: {2, 3, 0, 1}, 4: {3, 2, 1, 0},
		5: {0, 3, 2, 1}, 6: {3, 0, 1, 2}, 7: {2, 1, 0, 3}, 8: {1, 2, 3, 0},
	}
	dir, c := t.TempDir(), config(t)
	pixels := cornered(64, 48)
	var plainJPEG, plainPNG bytes.Buffer
	must.OK(t, jpeg.Encode(&plainJPEG, pixels, &jpeg.Options{Quality: 100}))
	must.OK(t, png.Encode(&plainPNG, pixels))
	for turn, want := range where {
		for name, content := range map[string][]byte{
			"little.jpg": withSegment(plainJPEG.Bytes(), exif(binary.LittleEndian, turn)),
			"big.jpg": withSegment(plainJPEG.Bytes(), jpegSegment(0xe1, []byte("http://ns.adobe.com/xap/1.0/\x00<x/>")),
				exif(binary.BigEndian, turn)),
			"c.png": bytes.Join([][]byte{plainPNG.Bytes()[:33], pngChunk("eXIf", exifTIFF(binary.BigEndian, turn)),
				plainPNG.Bytes()[33:]}, nil),
			"d.tiff": tiffOf(pixels, turn),
		} {
			in := plain(put(t, dir, fmt.Sprint(turn, name), content), "a=32x32", "b=20x10:fill")
			in.Quality = 100
			out, err := do(t.Context(), c, in)
			must.OK(t, err)
			w, h := 32, 24
			if turn >= 5 {
				w, h = h, w
			}
			if f := out.Files[0]; f.Width != w || f.Height != h || out.Width != 2*w || out.Height != 2*h ||
				out.Files[1].Width != 20 || out.Files[1].Height != 10 {
				t.Errorf("%d %s: %+v", turn, name, out)
			}
			for _, f := range out.Files {
				m := load(t, f.Path)
				for i, from := range want {
					x, y := []int{3, f.Width - 4, f.Width - 4, 3}[i], []int{3, 3, f.Height - 4, f.Height - 4}[i]
					r, g, b, _ := m.At(x, y).RGBA()
					wr, wg, wb, _ := corners[from].RGBA()
					if far(r, wr) || far(g, wg) || far(b, wb) {
						t.Errorf("%d %s: at %d, %d of %s is %v, want %v", turn, name, x, y, filepath.Base(f.Path), m.At(x, y),
							corners[from])
					}
				}
			}
		}
	}
}

// TestOrientation: odd chunks of a WebP are padded, and invalid data counts as absent.
func TestOrientation(t *testing.T) {
	chunk := func(name string, data []byte) []byte {
		b := append(binary.LittleEndian.AppendUint32([]byte(name), uint32(len(data))), data...)
		return append(b, make([]byte, len(data)%2)...)
	}
	webp := slices.Concat([]byte("RIFF????WEBP"), chunk("VP8 ", []byte("odd")),
		chunk("EXIF", exifTIFF(binary.LittleEndian, 6)))
	tiff := exifTIFF(binary.BigEndian, 6)
	far := bytes.Clone(tiff)
	copy(far[4:], "\xff\xff\xff\xfe")
	for name, tt := range map[string]struct {
		format string
		data   []byte
		want   int
	}{
		"WebP":                   {"webp", webp, 6},
		"WebP, cut":              {"webp", webp[:len(webp)-1], 1},
		"TIFF":                   {"tiff", tiff, 6},
		"TIFF, cut":              {"tiff", tiff[:8+2+12+11], 1},
		"TIFF, directory":        {"tiff", far, 1},
		"TIFF, no directory":     {"tiff", tiff[:8], 1},
		"TIFF, no such number":   {"tiff", exifTIFF(binary.BigEndian, 9), 1},
		"JPEG, segment of 1":     {"jpeg", []byte("\xff\xd8\xff\xe1\x00\x01????"), 1},
		"JPEG, behind pixels":    {"jpeg", slices.Concat([]byte("\xff\xd8\xff\xda\x00\x02"), exif(binary.BigEndian, 6)), 1},
		"PNG, block of 4 GB":     {"png", []byte("\x89PNG\r\n\x1a\n\xff\xff\xff\xffeXIf"), 1},
		"GIF, which has no EXIF": {"gif", tiff, 1},
	} {
		if got := orientation(tt.format, tt.data); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func far(a, b uint32) bool { return max(a, b)-min(a, b) > 40<<8 }

// tiffOf returns an uncompressed TIFF with an orientation, and more entries in its directory: tag, type, value.
func tiffOf(m *image.RGBA, turn uint16, more ...[3]uint32) []byte {
	w, h := uint32(m.Rect.Dx()), uint32(m.Rect.Dy())
	b := []byte("II*\x00")
	le := binary.LittleEndian
	entries := [][3]uint32{{256, 4, w}, {257, 4, h}, {258, 3, 8}, {259, 3, 1}, {262, 3, 2}, {273, 4, 0},
		{274, 3, uint32(turn)}, {277, 3, 3}, {278, 4, h}, {279, 4, w * h * 3}}
	for _, e := range more {
		entries = slices.DeleteFunc(entries, func(old [3]uint32) bool { return old[0] == e[0] })
	}
	entries = append(entries, more...)
	slices.SortFunc(entries, func(a, b [3]uint32) int { return cmp.Compare(a[0], b[0]) })
	pixelsAt := 8 + 2 + 12*uint32(len(entries)) + 4 + 6
	b = le.AppendUint16(le.AppendUint32(b, 8), uint16(len(entries)))
	for _, e := range entries {
		count, value := uint32(1), e[2]
		switch e[0] {
		case 258: // bits of each of three samples
			count, value = 3, pixelsAt-6
		case 273:
			value = pixelsAt
		}
		b = le.AppendUint32(le.AppendUint32(le.AppendUint16(le.AppendUint16(b, uint16(e[0])), uint16(e[1])), count), value)
	}
	b = le.AppendUint32(b, 0)
	for range 3 {
		b = le.AppendUint16(b, 8)
	}
	for i := 0; i < len(m.Pix); i += 4 {
		b = append(b, m.Pix[i:i+3]...)
	}
	return b
}
