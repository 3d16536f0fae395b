package photo

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// The test binary is also the plugin's process, and for TestKilled a program that resizes one picture.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "resize" {
		c := &Config{OutDir: os.Args[3], MaxBytes: 1 << 30, MaxPixels: 1 << 30, Memory: 1 << 30}
		err := c.Open(context.Background())
		if err == nil {
			_, err = do(context.Background(), c, killedPayload(os.Args[2]))
		}
		if err != nil {
			panic(err)
		}
		return
	}
	p := Plugin()
	one, err := filepath.Abs("testdata/one.png")
	if err != nil {
		panic(err)
	}
	p.Examples = []sdk.Example{{Doc: "a picture of 8 by 8 pixels",
		Payload: payload{"path": one}}}
	sdktest.Main(m, p)
}

// killedPayload returns a payload whose files take a while.
func killedPayload(path string) In {
	in := plain(path, "large=1000x1000", "medium=800x800", "small=500x500")
	in.Format = "png"
	return in
}

// payload is a payload from the command line: it has only the fields that were set.
type payload map[string]any

// plain returns the payload with the defaults of the SDK and these sizes.
func plain(path string, sizes ...string) In {
	return In{Path: path, Sizes: sizes, Format: "jpeg", Quality: 85, Name: "{stem}-{size}.{ext}"}
}

// config returns a config with the defaults of the SDK.
func config(t testing.TB) *Config {
	t.Helper()
	c := &Config{OutDir: t.TempDir(), MaxBytes: 256 << 20, MaxPixels: 100_000_000, Memory: 2 << 30}
	must.OK(t, c.Open(t.Context()))
	return c
}

// do works a picture in this process, without the SDK.
func do(ctx context.Context, c *Config, in In) (Out, error) {
	return resize(ctx, c, in, 1, func(int64, int64) {})
}

// scene returns a picture like a photo: large shapes with edges, gradients, fine patterns and noise.
func scene(w, h int, seed uint64) *image.RGBA {
	r := rand.New(rand.NewPCG(seed, 1))
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	type disc struct{ x, y, r, red, green, blue float64 }
	discs := make([]disc, 12)
	for i := range discs {
		discs[i] = disc{r.Float64() * float64(w), r.Float64() * float64(h), (0.05 + 0.2*r.Float64()) * float64(min(w, h)),
			r.Float64() * 255, r.Float64() * 255, r.Float64() * 255}
	}
	clamp := func(v float64) uint8 { return uint8(max(0, min(255, v))) }
	for y := range h {
		for x := range w {
			fx, fy := float64(x), float64(y)
			red, green, blue := 255*fx/float64(w), 255*fy/float64(h), 128+90*math.Sin(fx/41+math.Sin(fy/67))
			for _, d := range discs {
				if math.Hypot(fx-d.x, fy-d.y) < d.r {
					red, green, blue = d.red, d.green, d.blue
				}
			}
			fine := 25*math.Sin(fx/5)*math.Sin(fy/7) + 6*r.NormFloat64()
			m.SetRGBA(x, y, color.RGBA{clamp(red + fine), clamp(green + fine), clamp(blue + fine), 255})
		}
	}
	return m
}

// save writes a picture below dir, as JPEG or PNG by its name.
func save(t testing.TB, dir, name string, m image.Image) string {
	t.Helper()
	var b bytes.Buffer
	err := png.Encode(&b, m)
	if filepath.Ext(name) == ".jpg" {
		b.Reset()
		err = jpeg.Encode(&b, m, &jpeg.Options{Quality: 95})
	}
	must.OK(t, err)
	return put(t, dir, name, b.Bytes())
}

func put(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.OK(t, os.WriteFile(path, content, 0o600))
	return path
}

func get(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	must.OK(t, err)
	return content
}

// load decodes a file that the plugin wrote.
func load(t testing.TB, path string) image.Image {
	t.Helper()
	m, _, err := image.Decode(bytes.NewReader(get(t, path)))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return m
}

// exif returns a segment of a JPEG with its orientation and a secret text.
func exif(order binary.AppendByteOrder, turn uint16) []byte {
	return jpegSegment(0xe1, append([]byte("Exif\x00\x00"), exifTIFF(order, turn)...))
}

func exifTIFF(order binary.AppendByteOrder, turn uint16) []byte {
	b := []byte("II*\x00")
	if order.String() == binary.BigEndian.String() {
		b = []byte("MM\x00*")
	}
	entry := func(tag, kind uint16, count uint32) {
		b = order.AppendUint32(order.AppendUint16(order.AppendUint16(b, tag), kind), count)
	}
	b = order.AppendUint16(order.AppendUint32(b, 8), 2)
	entry(0x010e, 2, 16) // a description: its text follows the directory
	b = order.AppendUint32(b, 8+2+2*12+4)
	entry(tagOrientation, 3, 1)
	b = order.AppendUint16(order.AppendUint16(b, turn), 0)
	return append(order.AppendUint32(b, 0), "secret-location\x00"...)
}

// withSegment inserts segments after the first two bytes of a JPEG.
func withSegment(content []byte, segments ...[]byte) []byte {
	all := bytes.Clone(content[:2])
	for _, s := range segments {
		all = append(all, s...)
	}
	return append(all, content[2:]...)
}

func jpegSegment(marker byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(data)+2)), data...)
}

func pngChunk(kind string, data []byte) []byte {
	chunk := append(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), kind...), data...)
	return binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
}
