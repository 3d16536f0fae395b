package photo

import (
	"cmp"
	"context"
	"image"
	"image/draw"
	"slices"
	"strconv"
	"strings"

	xdraw "golang.org/x/image/draw"
)

// raster is a picture as planes that are scaled one by one, which is faster than pixels of three
// colours: luma; luma and both chromas, which may be smaller; or one plane of anything else.
type raster struct {
	w, h   int
	planes []image.Image // each begins at 0, 0
}

func newRaster(m image.Image) *raster {
	r := &raster{w: m.Bounds().Dx(), h: m.Bounds().Dy(), planes: []image.Image{m}}
	if c, ok := m.(*image.YCbCr); ok {
		chroma := image.Rect(0, 0, c.COffset(r.w-1, 0)+1, c.COffset(0, r.h-1)/c.CStride+1)
		r.planes = []image.Image{
			&image.Gray{Pix: c.Y, Stride: c.YStride, Rect: m.Bounds()},
			&image.Gray{Pix: c.Cb, Stride: c.CStride, Rect: chroma},
			&image.Gray{Pix: c.Cr, Stride: c.CStride, Rect: chroma},
		}
	}
	return r
}

// gray says whether it has no colours.
func (r *raster) gray() bool {
	_, ok := r.planes[0].(*image.Gray)
	return ok && len(r.planes) == 1
}

// size is one of the sizes that are asked for.
type size struct {
	name string
	w, h int
	mode string
}

// parseSizes reads what the payload's schema has let through.
func parseSizes(in In) (sizes []size) {
	for _, text := range in.Sizes {
		name, box, _ := strings.Cut(text, "=")
		box, mode, ok := strings.Cut(box, ":")
		if !ok {
			mode = in.Mode
		}
		w, h, _ := strings.Cut(box, "x")
		s := size{name: name, mode: mode}
		s.w, _ = strconv.Atoi(w)
		s.h, _ = strconv.Atoi(h)
		sizes = append(sizes, s)
	}
	return sizes
}

// of tells which part of a picture of w by h pixels becomes a picture of which size.
func (s size) of(w, h int) (part image.Rectangle, to image.Point) {
	cut := image.Pt(w, h)
	switch s.mode {
	case "fit":
		switch {
		case w <= s.w && h <= s.h:
			to = cut
		case w*s.h >= h*s.w:
			to = image.Pt(s.w, max(1, (h*s.w+w/2)/w))
		default:
			to = image.Pt(max(1, (w*s.h+h/2)/h), s.h)
		}
	case "fill":
		if w*s.h >= h*s.w {
			cut.X = max(1, (h*s.w+s.h/2)/s.h)
		} else {
			cut.Y = max(1, (w*s.h+s.w/2)/s.w)
		}
		if to = image.Pt(s.w, s.h); cut.X < s.w || cut.Y < s.h {
			to = cut
		}
	case "crop":
		cut = image.Pt(min(w, s.w), min(h, s.h))
		to = cut
	}
	from := image.Pt((w-cut.X)/2, (h-cut.Y)/2)
	return image.Rectangle{from, from.Add(cut)}, to
}

// each makes every size of a picture and hands it to use, the largest first. A size is made of the one
// before that shows the whole picture, if that has at least twice its pixels each way: that takes a
// fraction of the time, and nobody sees it.
func (r *raster) each(ctx context.Context, sizes []size, turn int, use func(i int, scaled *raster) error) error {
	type job struct {
		i    int
		part image.Rectangle
		to   image.Point
	}
	var jobs []job
	for i, s := range sizes {
		s.w, s.h = turned(s.w, s.h, turn) // of a picture that lies on its side
		part, to := s.of(r.w, r.h)
		jobs = append(jobs, job{i, part, to})
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.to.X*b.to.Y, a.to.X*a.to.Y) })
	smaller := r
	for _, j := range jobs {
		from, part := smaller, project(j.part, image.Pt(r.w, r.h), image.Pt(smaller.w, smaller.h))
		if part.Dx() < 2*j.to.X || part.Dy() < 2*j.to.Y {
			from, part = r, j.part
		}
		scaled, err := from.scale(ctx, part, j.to)
		if err == nil {
			err = use(j.i, scaled)
		}
		if err != nil {
			return err
		}
		if j.part.Dx() == r.w && j.part.Dy() == r.h {
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
func (r *raster) scale(ctx context.Context, part image.Rectangle, to image.Point) (*raster, error) {
	scaled := &raster{w: to.X, h: to.Y}
	for _, p := range r.planes {
		plane, err := scalePlane(ctx, p, project(part, image.Pt(r.w, r.h), p.Bounds().Max), to)
		if err != nil {
			return nil, err
		}
		scaled.planes = append(scaled.planes, plane)
	}
	return scaled, nil
}

// band is how many rows or columns are scaled at a time. The scaler takes 32 bytes for each of their
// pixels, which would be gigabytes for a whole picture, and it does not look at ctx.
const band = 16

// scalePlane scales a part of a plane with the kernel of Catmull and Rom, first its rows, then its
// columns. What is not gray becomes RGBA, with colours premultiplied by alpha, as scaling needs it.
func scalePlane(ctx context.Context, src image.Image, part image.Rectangle, to image.Point) (image.Image, error) {
	blank := func(r image.Rectangle) draw.Image { return image.NewRGBA(r) }
	_, gray := src.(*image.Gray)
	if gray {
		blank = func(r image.Rectangle) draw.Image { return image.NewGray(r) }
	}
	_, ready := src.(*image.RGBA)
	ready = ready || gray
	narrow, scaled := blank(image.Rect(0, 0, to.X, part.Dy())), blank(image.Rectangle{Max: to})
	rows := xdraw.CatmullRom.NewScaler(to.X, band, part.Dx(), band)
	for y := 0; y < part.Dy(); y += band {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		from := image.Rect(part.Min.X, part.Min.Y+y, part.Max.X, min(part.Min.Y+y+band, part.Max.Y))
		strip := src
		if !ready {
			rgba := blank(from)
			draw.Draw(rgba, from, src, from.Min, draw.Src)
			strip = rgba
		}
		rows.Scale(narrow, image.Rect(0, y, to.X, y+from.Dy()), strip, from, xdraw.Src, nil)
	}
	columns := xdraw.CatmullRom.NewScaler(band, to.Y, band, part.Dy())
	for x := 0; x < to.X; x += band {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		from := image.Rect(x, 0, min(x+band, to.X), part.Dy())
		columns.Scale(scaled, image.Rect(x, 0, from.Max.X, to.Y), narrow, from, xdraw.Src, nil)
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
func (r *raster) turn(turn int) *raster {
	if turn == 1 {
		return r
	}
	t := &raster{}
	t.w, t.h = turned(r.w, r.h, turn)
	mirrored, headlong := strings.Contains("2378", strconv.Itoa(turn)), strings.Contains("3467", strconv.Itoa(turn))
	for _, p := range r.planes {
		var from, to []byte
		n := 1
		switch p := p.(type) {
		case *image.Gray:
			g := image.NewGray(image.Rect(0, 0, t.w, t.h))
			from, to, t.planes = p.Pix, g.Pix, append(t.planes, g)
		case *image.RGBA:
			g := image.NewRGBA(image.Rect(0, 0, t.w, t.h))
			from, to, t.planes, n = p.Pix, g.Pix, append(t.planes, g), 4
		}
		for y := range t.h {
			for x := range t.w {
				sx, sy := turned(x, y, turn)
				if mirrored {
					sx = r.w - 1 - sx
				}
				if headlong {
					sy = r.h - 1 - sy
				}
				copy(to[(y*t.w+x)*n:][:n], from[(sy*r.w+sx)*n:])
			}
		}
	}
	return t
}

// image is a scaled picture as one that can be encoded.
func (r *raster) image(format string) image.Image {
	bounds := image.Rect(0, 0, r.w, r.h)
	m := r.planes[0]
	if len(r.planes) == 3 {
		pix := func(i int) []byte { return r.planes[i].(*image.Gray).Pix }
		m = &image.YCbCr{Y: pix(0), Cb: pix(1), Cr: pix(2), YStride: r.w, CStride: r.w, SubsampleRatio: image.YCbCrSubsampleRatio444, Rect: bounds}
	}
	if _, gray := m.(*image.Gray); gray || len(r.planes) == 3 && format == "jpeg" {
		return m
	}
	rgba := image.NewRGBA(bounds)
	if format == "jpeg" {
		draw.Draw(rgba, bounds, image.White, image.Point{}, draw.Src)
	}
	draw.Draw(rgba, bounds, m, image.Point{}, draw.Over)
	return rgba
}
