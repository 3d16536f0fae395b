package photo

import (
	"image"
	"testing"
)

// BenchmarkPhoto makes the three usual sizes of a picture of 12 megapixels, with one core's work at a time.
func BenchmarkPhoto(b *testing.B) {
	path := save(b, b.TempDir(), "a.jpg", scene(4000, 3000, 1))
	c, pixels := config(b), image.Pt(4000, 3000)
	for b.Loop() {
		c.OutDir = b.TempDir()
		if _, err := do(b.Context(), c, plain(path, "large=1600x1600", "medium=800x800", "thumb=200x200:fill")); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(pixels.X*pixels.Y)/1e6*float64(b.N)/b.Elapsed().Seconds(), "MP/s")
}
