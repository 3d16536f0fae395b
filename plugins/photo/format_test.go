//go:build unix

package photo

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	"image/gif"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// video is a picture with brightness from 16 to 235, with the factors of ITU-R BT.601.
type video struct{ *image.YCbCr }

func (v video) At(x, y int) color.Color {
	c := v.YCbCrAt(x, y)
	luma, cb, cr := 1.164*(float64(c.Y)-16), float64(c.Cb)-128, float64(c.Cr)-128
	clamp := func(v float64) uint8 { return uint8(max(0, min(255, v+0.5))) }
	return color.RGBA{clamp(luma + 1.596*cr), clamp(luma - 0.813*cr - 0.392*cb), clamp(luma + 2.017*cb), 255}
}

// Pictures of 32 by 32 pixels in lossy WebP: white, black; red, blue. In clearWebP the blue is transparent.
const (
	lossyWebP = "UklGRmAAAABXRUJQVlA4IFQAAABQBACdASogACAAPjEUiEKiISEYBAAgAwSgCADBCeAfiB+qvGBcoAGSw66AAP7/fJzf/h21/2gC///L01qj" +
		"cl///RqfaU7amT8/QVBhHPxHxdnAAAA="
	clearWebP = "UklGRowAAABXRUJQVlA4WAoAAAAQAAAAHwAAHwAAQUxQSBIAAAABINK2mX/Tg8M/iogJ8A7J+wJWUDggVAAAAFAEAJ0BKiAAIAA+MRSIQqIh" +
		"IRgEACADBKAIAMEJ4B+IH6q8YFygAZLDroAA/v98nN/+HbX/aAL//8vTWqNyX//9Gp9pTtqZPz9BUGEc/EfF2cAAAA=="
)

// TestLossyWebP: white stays white and black stays black.
func TestLossyWebP(t *testing.T) {
	c, dir := config(t), t.TempDir()
	for name, tt := range map[string]struct {
		content, format string
		fourth          color.NRGBA
	}{
		"opaque":           {lossyWebP, "png", color.NRGBA{30, 30, 200, 255}},
		"opaque, as JPEG":  {lossyWebP, "jpeg", color.NRGBA{30, 30, 200, 255}},
		"in part":          {clearWebP, "png", color.NRGBA{}},
		"in part, as JPEG": {clearWebP, "jpeg", color.NRGBA{255, 255, 255, 255}},
	} {
		content, err := base64.StdEncoding.DecodeString(tt.content)
		must.OK(t, err)
		in := plain(put(t, dir, name+".webp", content), "all=32x32")
		in.Format, in.Quality = tt.format, 100
		out, err := do(t.Context(), c, in)
		must.OK(t, err)
		m := load(t, out.Files[0].Path)
		want := []color.NRGBA{{255, 255, 255, 255}, {0, 0, 0, 255}, {200, 30, 30, 255}, tt.fourth}
		for i, at := range []image.Point{{7, 7}, {24, 7}, {7, 24}, {24, 24}} {
			got := color.NRGBAModel.Convert(m.At(at.X, at.Y)).(color.NRGBA)
			near := func(a, b uint8) bool { return max(a, b)-min(a, b) <= 3 }
			if !near(got.R, want[i].R) || !near(got.G, want[i].G) || !near(got.B, want[i].B) || got.A != want[i].A {
				t.Errorf("%s: at %v is %v, want %v", name, at, got, want[i])
			}
		}
	}
}

// TestGIFScreen: a first frame that is smaller than the screen keeps its place, and the rest is transparent.
func TestGIFScreen(t *testing.T) {
	red := color.NRGBA{255, 0, 0, 255}
	frame := image.NewPaletted(image.Rect(4, 2, 8, 6), color.Palette{red, color.White})
	var b bytes.Buffer
	err := gif.EncodeAll(&b, &gif.GIF{
		Image: []*image.Paletted{frame}, Delay: []int{0},
		Config: image.Config{Width: 12, Height: 8, ColorModel: color.Palette{color.White, red}},
	})
	must.OK(t, err)
	in := plain(put(t, t.TempDir(), "a.gif", b.Bytes()), "all=100x100")
	in.Format = "png"
	out, err := do(t.Context(), config(t), in)
	if err != nil || out.Width != 12 || out.Height != 8 || out.Files[0].Width != 12 {
		t.Fatalf("%+v %v, want 12 by 8 pixels", out, err)
	}
	m := load(t, out.Files[0].Path)
	for y := range 8 {
		for x := range 12 {
			want := color.NRGBA{}
			if image.Pt(x, y).In(frame.Rect) {
				want = red
			}
			if got := color.NRGBAModel.Convert(m.At(x, y)); got != want {
				t.Fatalf("at %d, %d is %v, want %v", x, y, got, want)
			}
		}
	}
}

// TestUnsupported: a picture that cannot be decoded correctly is refused with its type, and no wrong picture is made.
func TestUnsupported(t *testing.T) {
	c, dir := config(t), t.TempDir()
	tiff := func(more ...[3]uint32) string { return string(tiffOf(cornered(16, 16), 1, more...)) }
	for name, tt := range map[string]struct {
		content string
		mention string // "" is done
	}{
		"TIFF":                {tiff(), ""},
		"TIFF, chunky":        {tiff([3]uint32{tagPlanar, 3, 1}), ""},
		"TIFF in planes":      {tiff([3]uint32{tagPlanar, 3, 2}), "PlanarConfiguration 2"},
		"TIFF, lowest bit":    {tiff([3]uint32{tagFillOrder, 3, 2}), "FillOrder 2"},
		"TIFF, highest bit":   {tiff([3]uint32{tagFillOrder, 3, 1}), ""},
		"TIFF, preview first": {tiff([3]uint32{tagSubfile, 4, 1}), "preview"},
		"TIFF, page of many":  {tiff([3]uint32{tagSubfile, 4, 2}), ""},
		"DNG":                 {tiff([3]uint32{tagDNGVersion, 1, 1}), "raw photo"},
		"TIFF, JPEG inside":   {tiff([3]uint32{tagCompression, 3, 7}), "compression"},
		"HEIC":                {"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "HEIC"},
		"AVIF":                {"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00mif1avif", "AVIF"},
		"AVIF by the second":  {"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1avif", "AVIF"},
		"CR3":                 {"\x00\x00\x00\x18ftypcrx \x00\x00\x00\x01crx isom", "CR3"},
		"JPEG XL":             {"\xff\x0a\xfa\x1f", "JPEG XL"},
		"JPEG XL in a box":    {"\x00\x00\x00\x0cJXL \r\n\x87\n", "JPEG XL"},
		"JPEG 2000":           {"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG 2000"},
		"JPEG 2000, bare":     {"\xff\x4f\xff\x51\x00", "JPEG 2000"},
		"PSD":                 {"8BPS\x00\x01", "PSD"},
		"icon":                {"\x00\x00\x01\x00\x01\x00\x10\x10\x00\x00", "ICO"},
		"PPM":                 {"P6\n2 2\n255\n", "PNM"},
		"SVG":                 {"<?xml version=\"1.0\"?>\n<!-- drawn -->\n<svg xmlns=\"x\">", "SVG"},
		"BMP, run lengths": {"BM" + strings.Repeat("\x00", 8) +
			"\x76\x00\x00\x00\x28\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x01\x00\x04\x00\x02" + strings.Repeat("\x00",
			90), "BMP"},
		"animated WebP": {"RIFF\x1a\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02\x00\x00\x00\x09\x00\x00\x09\x00\x00",
			"animated WebP"},
		"raw photo of Olympus": {"IIRO\x08\x00\x00\x00", "ORF"},
	} {
		path := put(t, dir, strings.ReplaceAll(name, " ", "_")+".x", []byte(tt.content))
		_, err := do(t.Context(), c, plain(path, "a=8x8"))
		switch {
		case tt.mention == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.mention != "" && (codeOf(err) != "unsupported" || !strings.Contains(err.Error(), tt.mention)):
			t.Errorf("%s: %s %v, want unsupported with %q", name, codeOf(err), err, tt.mention)
		}
	}
}
