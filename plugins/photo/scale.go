package photo

import (
	"cmp"
	"context"
	"fmt"
	"image"
	"image/draw"
	"slices"
	"strconv"
	"strings"

	xdraw "golang.org/x/image/draw"
)

// picture is an image as planes that are scaled one by one, which is faster than pixels of three colours:
// luma; luma and both chromas, which may be smaller; or all else as RGBA, with colours premultiplied
// by alpha, as scaling needs it.
type picture []plane

// plane has 1 (gray) or 4 (RGBA) bytes a pixel.
type plane struct {
	pix                    []byte
	stride, perPixel, w, h int
}

func newPlane(perPixel, w, h int) plane {
	return plane{make([]byte, perPixel*w*h), perPixel * w, perPixel, w, h}
}

func newPicture(m image.Image) picture {
	w, h := m.Bounds().Dx(), m.Bounds().Dy()
	switch m := m.(type) {
	case *image.Gray:
		return picture{{m.Pix, m.Stride, 1, w, h}}
	case *image.YCbCr:
		cw, ch := m.COffset(w-1, 0)+1, m.COffset(0, h-1)/m.CStride+1
		return picture{{m.Y, m.YStride, 1, w, h}, {m.Cb, m.CStride, 1, cw, ch}, {m.Cr, m.CStride, 1, cw, ch}}
	case *image.RGBA:
		return picture{{m.Pix, m.Stride, 4, w, h}}
	}
	rgba := newPlane(4, w, h)
	draw.Draw(rgba.image(), image.Rect(0, 0, w, h), m, m.Bounds().Min, draw.Src)
	return picture{rgba}
}

func (p plane) size() image.Point { return image.Pt(p.w, p.h) }

func (p plane) image() draw.Image {
	if p.perPixel == 1 {
		return &image.Gray{Pix: p.pix, Stride: p.stride, Rect: image.Rect(0, 0, p.w, p.h)}
	}
	return &image.RGBA{Pix: p.pix, Stride: p.stride, Rect: image.Rect(0, 0, p.w, p.h)}
}

// image is a scaled picture as one that can be encoded.
func (p picture) image(format string) image.Image {
	m := image.Image(p[0].image())
	if len(p) == 3 {
		m = &image.YCbCr{Y: p[0].pix, Cb: p[1].pix, Cr: p[2].pix, YStride: p[0].w, CStride: p[0].w, SubsampleRatio: image.YCbCrSubsampleRatio444, Rect: m.Bounds()}
	}
	if gray := len(p) == 1 && p[0].perPixel == 1; gray || (len(p) == 3) == (format == "jpeg") {
		return m
	}
	rgba := image.NewRGBA(m.Bounds())
	draw.Draw(rgba, rgba.Rect, image.White, image.Point{}, draw.Src)
	draw.Draw(rgba, rgba.Rect, m, image.Point{}, draw.Over)
	return rgba
}

// size is one of the sizes that are asked for.
type size struct {
	name string
	w, h int
	mode string
}

// parseSizes reads what the payload's schema has let through.
func parseSizes(texts []string) (sizes []size) {
	for _, text := range texts {
		name, box, _ := strings.Cut(text, "=")
		box, mode, _ := strings.Cut(box, ":")
		s := size{name: name, mode: mode}
		_, _ = fmt.Sscanf(box, "%dx%d", &s.w, &s.h)
		sizes = append(sizes, s)
	}
	return sizes
}

// of tells which part of a picture of w by h pixels becomes a picture of which size.
func (s size) of(w, h int) (part image.Rectangle, to image.Point) {
	scaled := func(side, by, of int) int { return max(1, (side*by+of/2)/of) }
	cut, to := image.Pt(w, h), image.Pt(min(w, s.w), min(h, s.h))
	switch s.mode {
	case "fill":
		cut = image.Pt(min(w, scaled(h, s.w, s.h)), min(h, scaled(w, s.h, s.w)))
		to = image.Pt(min(cut.X, s.w), min(cut.Y, s.h))
	case "crop":
		cut = to
	default:
		to = image.Pt(min(to.X, scaled(w, to.Y, h)), min(to.Y, scaled(h, to.X, w)))
	}
	from := image.Pt((w-cut.X)/2, (h-cut.Y)/2)
	return image.Rectangle{from, from.Add(cut)}, to
}

// each makes every size of a picture and hands it to use, the largest first. A size is made of the one
// before that shows the whole picture, if that has at least twice its pixels each way: that takes a
// fraction of the time, and nobody sees it.
func (p picture) each(ctx context.Context, sizes []size, turn int, use func(i int, scaled picture) error) error {
	type job struct {
		i    int
		part image.Rectangle
		to   image.Point
	}
	var jobs []job
	for i, s := range sizes {
		s.w, s.h = turned(s.w, s.h, turn) // of a picture that lies on its side
		part, to := s.of(p[0].w, p[0].h)
		jobs = append(jobs, job{i, part, to})
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.to.X*b.to.Y, a.to.X*a.to.Y) })
	smaller := p
	for _, j := range jobs {
		from, part := smaller, project(j.part, p[0].size(), smaller[0].size())
		if part.Dx() < 2*j.to.X || part.Dy() < 2*j.to.Y {
			from, part = p, j.part
		}
		scaled, err := from.scale(ctx, part, j.to)
		if err != nil {
			return err
		}
		if err := use(j.i, scaled.turn(turn)); err != nil {
			return err
		}
		if j.part.Size() == p[0].size() {
			smaller = scaled
		}
	}
	return nil
}

// project finds the part of a picture in another one that shows the same and has another size.
func project(part image.Rectangle, from, to image.Point) image.Rectangle {
	line := func(a, b, from, to int) (int, int) {
		a = min((a*to+from/2)/from, to-1)
		return a, max(a+1, (b*to+from/2)/from)
	}
	part.Min.X, part.Max.X = line(part.Min.X, part.Max.X, from.X, to.X)
	part.Min.Y, part.Max.Y = line(part.Min.Y, part.Max.Y, from.Y, to.Y)
	return part
}

// scale makes a picture of a part of it; its planes all have the same size.
func (p picture) scale(ctx context.Context, part image.Rectangle, to image.Point) (scaled picture, err error) {
	for _, from := range p {
		plane, err := from.scale(ctx, project(part, p[0].size(), from.size()), to)
		if err != nil {
			return nil, err
		}
		scaled = append(scaled, plane)
	}
	return scaled, nil
}

// band is how many rows or columns are scaled at a time. The scaler takes 32 bytes for each of their
// pixels, which would be gigabytes for a whole picture, and it does not look at ctx.
const band = 16

// scale scales a part of a plane with the kernel of Catmull and Rom, first its rows, then its columns.
func (p plane) scale(ctx context.Context, part image.Rectangle, to image.Point) (plane, error) {
	narrow, scaled := newPlane(p.perPixel, to.X, part.Dy()), newPlane(p.perPixel, to.X, to.Y)
	rows := xdraw.CatmullRom.NewScaler(to.X, band, part.Dx(), band)
	for y := 0; y < part.Dy(); y += band {
		if ctx.Err() != nil {
			return plane{}, context.Cause(ctx)
		}
		strip := image.Rect(0, y, to.X, min(y+band, part.Dy()))
		from := image.Rect(part.Min.X, part.Min.Y+strip.Min.Y, part.Max.X, part.Min.Y+strip.Max.Y)
		rows.Scale(narrow.image(), strip, p.image(), from, xdraw.Src, nil)
	}
	columns := xdraw.CatmullRom.NewScaler(band, to.Y, band, part.Dy())
	for x := 0; x < to.X; x += band {
		if ctx.Err() != nil {
			return plane{}, context.Cause(ctx)
		}
		from := image.Rect(x, 0, min(x+band, to.X), part.Dy())
		columns.Scale(scaled.image(), image.Rect(x, 0, from.Max.X, to.Y), narrow.image(), from, xdraw.Src, nil)
	}
	return scaled, nil
}

// turned is the size of a picture that was turned.
func turned(w, h, turn int) (int, int) {
	if turn >= 5 {
		return h, w
	}
	return w, h
}

// turn turns a scaled picture the right way up, by the number that EXIF has for it: 2 mirrored, 3 upside
// down, 4 both; 5 mirrored on its side, 6 to be turned to the right, 7 both, 8 to the left.
func (p picture) turn(turn int) (upright picture) {
	if turn == 1 {
		return p
	}
	mirrored, headlong := strings.Contains("2378", strconv.Itoa(turn)), strings.Contains("3467", strconv.Itoa(turn))
	for _, from := range p {
		w, h := turned(from.w, from.h, turn)
		to := newPlane(from.perPixel, w, h)
		for y := range h {
			for x := range w {
				sx, sy := turned(x, y, turn)
				if mirrored {
					sx = from.w - 1 - sx
				}
				if headlong {
					sy = from.h - 1 - sy
				}
				copy(to.pix[y*to.stride+x*to.perPixel:][:to.perPixel], from.pix[sy*from.stride+sx*from.perPixel:])
			}
		}
		upright = append(upright, to)
	}
	return upright
}
