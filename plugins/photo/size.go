package photo

import (
	"cmp"
	"context"
	"fmt"
	"image"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/plugins/photo/internal/picture"
)

// size is a size that the payload names.
type size struct {
	name string
	w, h int
	mode string
}

// parseSizes parses the sizes. The payload's schema has checked them.
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

// of returns the part of a picture of w by h pixels that is used, and the size to which it is scaled.
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

// each makes all sizes of a picture and passes them to use, the largest first. A size is made from the last one that
// shows the whole picture, if that has at least twice as many pixels each way. This takes a fraction of the time, and
// the difference is not visible.
func each(ctx context.Context, p picture.Picture, sizes []size, turn int,
	use func(i int, scaled picture.Picture) error) error {
	type job struct {
		i    int
		part image.Rectangle
		to   image.Point
	}
	var jobs []job
	whole := p.Size()
	for i, s := range sizes {
		s.w, s.h = picture.Turned(s.w, s.h, turn) // for a picture that is stored on its side
		part, to := s.of(whole.X, whole.Y)
		jobs = append(jobs, job{i, part, to})
	}
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.to.X*b.to.Y, a.to.X*a.to.Y) })
	smaller := p
	for _, j := range jobs {
		from, has := smaller, smaller.Size()
		if j.part.Dx()*has.X < 2*j.to.X*whole.X || j.part.Dy()*has.Y < 2*j.to.Y*whole.Y {
			from = p
		}
		scaled, err := from.Scale(ctx, j.part, whole, j.to)
		if err != nil {
			return err
		}
		if err := use(j.i, scaled.Turn(turn)); err != nil {
			return err
		}
		if j.part.Size() == whole {
			smaller = scaled
		}
	}
	return nil
}
