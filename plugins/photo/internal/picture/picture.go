// Package picture scales and turns the pictures of the plugin photo, between decoding and encoding.
//
// A picture keeps the planes of its file. Luma and chroma of a JPEG are scaled separately, never become colours, and
// are encoded as they are: that takes less than half the time of scaling colours.
package picture

import (
	"context"
	"image"
	"image/draw"
	"strconv"
	"strings"

	xdraw "golang.org/x/image/draw"
)

// Picture is one plane of luma; or luma and both chromas, perhaps smaller; or RGBA for all else. Colours are
// premultiplied by alpha, as scaling needs it.
type Picture []plane

// plane has 1 (gray) or 4 (RGBA) bytes a pixel.
type plane struct {
	pix                    []byte
	stride, perPixel, w, h int
}

func newPlane(perPixel, w, h int) plane {
	return plane{make([]byte, perPixel*w*h), perPixel * w, perPixel, w, h}
}

// New returns a decoded picture as a Picture. It may use the memory of m.
func New(m image.Image) Picture {
	w, h := m.Bounds().Dx(), m.Bounds().Dy()
	switch m := m.(type) {
	case *image.Gray:
		return Picture{{m.Pix, m.Stride, 1, w, h}}
	case *image.YCbCr:
		cw, ch := m.COffset(w-1, 0)+1, m.COffset(0, h-1)/m.CStride+1
		return Picture{{m.Y, m.YStride, 1, w, h}, {m.Cb, m.CStride, 1, cw, ch}, {m.Cr, m.CStride, 1, cw, ch}}
	}
	rgba, ok := m.(*image.RGBA)
	if !ok {
		rgba = image.NewRGBA(image.Rect(0, 0, w, h))
		draw.Draw(rgba, rgba.Rect, m, m.Bounds().Min, draw.Src)
	}
	return Picture{{rgba.Pix, rgba.Stride, 4, w, h}}
}

// Size returns the width and height in pixels.
func (p Picture) Size() image.Point { return image.Pt(p[0].w, p[0].h) }

// Image returns a scaled picture in a form that can be encoded as "jpeg" or "png". In a JPEG, transparent pixels
// become white.
func (p Picture) Image(format string) image.Image {
	first, rect := p[0], image.Rectangle{Max: p.Size()}
	m := image.Image(&image.RGBA{Pix: first.pix, Stride: first.stride, Rect: rect})
	if len(p) == 3 {
		m = &image.YCbCr{Y: first.pix, Cb: p[1].pix, Cr: p[2].pix, YStride: first.stride, CStride: first.stride,
			SubsampleRatio: image.YCbCrSubsampleRatio444, Rect: rect}
	} else if first.perPixel == 1 {
		return &image.Gray{Pix: first.pix, Stride: first.stride, Rect: rect}
	}
	if (len(p) == 3) == (format == "jpeg") {
		return m
	}
	rgba := image.NewRGBA(rect)
	draw.Draw(rgba, rect, image.White, image.Point{}, draw.Src)
	draw.Draw(rgba, rect, m, image.Point{}, draw.Over)
	return rgba
}

// Scale scales a part of a picture to the size to. part is given in pixels of the whole picture at the size whole; p
// may be a smaller version of it. All planes of the result have the same size. If ctx ends, Scale soon returns its
// cause.
func (p Picture) Scale(ctx context.Context, part image.Rectangle, whole, to image.Point) (scaled Picture,
	err error) {
	for _, from := range p {
		narrow := from.scaleRows(ctx, project(part, whole, image.Pt(from.w, from.h)), to.X)
		scaled = append(scaled, narrow.scaleRows(ctx, image.Rect(0, 0, narrow.w, narrow.h), to.Y))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return scaled, nil
}

// project converts a part of a picture to the pixels of another one that shows the same in another size.
func project(part image.Rectangle, from, to image.Point) image.Rectangle {
	line := func(a, b, from, to int) (int, int) {
		a = min((a*to+from/2)/from, to-1)
		return a, max(a+1, (b*to+from/2)/from)
	}
	part.Min.X, part.Max.X = line(part.Min.X, part.Max.X, from.X, to.X)
	part.Min.Y, part.Max.Y = line(part.Min.Y, part.Max.Y, from.Y, to.Y)
	return part
}

// scaleRows makes each row of a part n pixels wide, with the kernel of Catmull and Rom. The rows become columns, so
// two calls scale a picture both ways and restore the orientation. When ctx ends, the rest stays black.
//
// The scaler computes colours also for gray. So three rows of gray are scaled at a time, as the red, green and blue of
// one opaque row. It is called row by row, because it needs 32 bytes a pixel and does not watch ctx.
func (p plane) scaleRows(ctx context.Context, part image.Rectangle, n int) plane {
	scaler := xdraw.CatmullRom.NewScaler(n, 1, part.Dx(), 1)
	wide, narrow := image.NewRGBA(image.Rect(0, 0, part.Dx(), 1)), image.NewRGBA(image.Rect(0, 0, n, 1))
	draw.Draw(wide, wide.Rect, image.White, image.Point{}, draw.Src)
	columns, atOnce := newPlane(p.perPixel, part.Dy(), n), map[int]int{1: 3, 4: 1}[p.perPixel]
	for y := 0; y < part.Dy() && ctx.Err() == nil; y += atOnce {
		rows := min(atOnce, part.Dy()-y)
		for i := range rows {
			row := p.pix[(part.Min.Y+y+i)*p.stride+part.Min.X*p.perPixel:][:part.Dx()*p.perPixel]
			if p.perPixel == 4 {
				wide.Pix = row
				continue
			}
			for x, v := range row {
				wide.Pix[4*x+i] = v
			}
		}
		scaler.Scale(narrow, narrow.Rect, wide, wide.Rect, xdraw.Src, nil)
		for x := range n {
			copy(columns.pix[x*columns.stride+y*p.perPixel:][:rows*p.perPixel], narrow.Pix[4*x:])
		}
	}
	return columns
}

// Turned returns the size of a turned picture; see [Picture.Turn].
func Turned(w, h, turn int) (int, int) {
	if turn >= 5 {
		return h, w
	}
	return w, h
}

// Turn turns a scaled picture upright. turn is the orientation in EXIF:
//
//   - 1: leave it
//   - 2: mirror left to right
//   - 3: rotate by 180°
//   - 4: mirror top to bottom
//   - 5: mirror left to right, then rotate by 270° clockwise
//   - 6: rotate by 90° clockwise
//   - 7: mirror left to right, then rotate by 90° clockwise
//   - 8: rotate by 270° clockwise
func (p Picture) Turn(turn int) (upright Picture) {
	if turn == 1 {
		return p
	}
	flipX, flipY := strings.Contains("2378", strconv.Itoa(turn)), strings.Contains("3467", strconv.Itoa(turn))
	for _, from := range p {
		w, h := Turned(from.w, from.h, turn)
		to := newPlane(from.perPixel, w, h)
		for y := range h {
			for x := range w {
				sx, sy := Turned(x, y, turn)
				if flipX {
					sx = from.w - 1 - sx
				}
				if flipY {
					sy = from.h - 1 - sy
				}
				copy(to.pix[y*to.stride+x*to.perPixel:][:to.perPixel], from.pix[sy*from.stride+sx*from.perPixel:])
			}
		}
		upright = append(upright, to)
	}
	return upright
}
