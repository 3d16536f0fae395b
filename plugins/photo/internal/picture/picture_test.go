package picture

import (
	"context"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"testing"

	"pgregory.net/rapid"
)

// TestRowsTogether: gray is scaled like colours, whichever rows are scaled together.
func TestRowsTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := rapid.IntRange(1, 20)
		gray := image.NewGray(image.Rect(0, 0, side.Draw(t, "width"), side.Draw(t, "height")))
		copy(gray.Pix, rapid.SliceOfN(rapid.Byte(), len(gray.Pix), len(gray.Pix)).Draw(t, "pixels"))
		rgba := image.NewRGBA(gray.Rect)
		draw.Draw(rgba, rgba.Rect, gray, image.Point{}, draw.Src)
		part := gray.Rect
		part.Min.X, part.Min.Y = rapid.IntRange(0, part.Max.X-1).Draw(t, "left"), rapid.IntRange(0, part.Max.Y-1).Draw(t,
			"top")
		to := image.Pt(side.Draw(t, "to width"), side.Draw(t, "to height"))
		scaled := func(m image.Image) image.Image {
			p, err := New(m).Scale(t.Context(), part, gray.Rect.Size(), to)
			if err != nil || p.Size() != to {
				t.Fatalf("%v, want %v: %v", p.Size(), to, err)
			}
			return p.Image("png")
		}
		a, b := scaled(gray), scaled(rgba)
		for y := range to.Y {
			for x := range to.X {
				if got, want := a.At(x, y), color.GrayModel.Convert(b.At(x, y)); got != want {
					t.Fatalf("at %d, %d: %v, want %v", x, y, got, want)
				}
			}
		}
	})
}

// TestScaleEnds: an interrupted Scale returns no picture.
func TestScaleEnds(t *testing.T) {
	cause := errors.New("no more")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	m := image.NewGray(image.Rect(0, 0, 9, 9))
	if p, err := New(m).Scale(ctx, m.Rect, m.Rect.Size(), image.Pt(3, 3)); p != nil || !errors.Is(err, cause) {
		t.Errorf("%v, %v", p, err)
	}
}
