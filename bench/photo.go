package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/internal/apt"
)

const (
	photoWidth, photoHeight = 4000, 3000
	photoScenes             = 4 // that are drawn; the files are copies of them
)

// photo makes three sizes of a folder of photos: with ledgerd as one uses it, and with ImageMagick, a
// process a photo.
func (s *suite) photo() measure.Scenario {
	var dir, convert string
	n := max(photoScenes, int(24*s.scale))
	timed := func(work func(ctx context.Context, out string) (cpu time.Duration, err error)) measure.Sampler {
		return func(ctx context.Context) (measure.Sample, error) {
			out, err := os.MkdirTemp(dir, "out-")
			if err != nil {
				return nil, err
			}
			began := time.Now()
			cpu, err := work(ctx, out)
			if err != nil {
				return nil, err
			}
			rate := float64(n*photoWidth*photoHeight) / 1e6 / time.Since(began).Seconds()
			made, err := filepath.Glob(filepath.Join(out, "*.jpg"))
			if err == nil && len(made) != 3*n {
				err = fmt.Errorf("made %d files, want %d", len(made), 3*n)
			}
			return measure.Sample{"made": rate, "cpu": cpu.Seconds() * 1000 / float64(n)}, errors.Join(err, os.RemoveAll(out))
		}
	}
	run := func(ctx context.Context, program string, args ...string) (cpu time.Duration, err error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "MAGICK_THREAD_LIMIT=1") // there is a process for each core
		if said, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%v: %w\n%s", cmd.Args, err, said)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
	}
	magick := func(options ...string) func(context.Context, string) (time.Duration, error) {
		return func(ctx context.Context, out string) (time.Duration, error) {
			var cpu atomic.Int64
			group, ctx := errgroup.WithContext(ctx)
			group.SetLimit(runtime.NumCPU())
			for i := range n {
				group.Go(func() error {
					stem := filepath.Join(out, fmt.Sprint(i))
					took, err := run(ctx, convert, append(options[:len(options):len(options)],
						filepath.Join(dir, "in", fmt.Sprintf("%d.jpg", i)),
						"-auto-orient", "-strip", "-filter", "Catrom", "-quality", "85",
						"-resize", "1600x1600>", "-write", stem+"-large.jpg", "-resize", "800x800>", "-write", stem+"-medium.jpg",
						"-resize", "200x200^", "-gravity", "center", "-extent", "200x200", stem+"-thumb.jpg")...)
					cpu.Add(int64(took))
					return err
				})
			}
			err := group.Wait()
			return time.Duration(cpu.Load()), err
		}
	}
	return measure.Scenario{
		Name: "photo", Title: "photos", OneIn: 3,
		About: fmt.Sprintf("%d JPEGs of 12 megapixels become 1600 × 1600, 800 × 800 and 200 × 200, the last filled: "+
			"`ledgerd run photo` with a new ledger on SQLite, which also waits for the disk with every file, and ImageMagick "+
			"with the same kernel, a process a photo and one for each core. cpu is for each photo.", n),
		Metrics: []measure.Metric{{Name: "made", Unit: "MP/s"}, {Name: "cpu", Unit: "ms"}},
		Prepare: func(ctx context.Context) (func() error, error) {
			var err error
			if dir, err = os.MkdirTemp(s.Dir, "photo-"); err != nil {
				return nil, err
			}
			remove := func() error { return os.RemoveAll(dir) }
			if convert, err = imageMagick(ctx); err != nil {
				return remove, err
			}
			return remove, drawPhotos(filepath.Join(dir, "in"), n)
		},
		Sides: []measure.Side{
			{Name: "ledgerd", Run: timed(func(ctx context.Context, out string) (time.Duration, error) {
				return run(ctx, filepath.Join(s.Programs, "ledgerd"), "run", "photo", filepath.Join(dir, "in"), "--db", "sqlite:"+
					filepath.Join(out, "ledger.db"), "--with", "out_dir="+out, "-q")
			})},
			{Name: "ImageMagick", Run: timed(magick())},
			{Name: "ImageMagick, jpeg:size", Run: timed(magick("-define", "jpeg:size=3200x3200"))},
		},
	}
}

// imageMagick finds ImageMagick, or installs it. Its program has another name in each version, and
// "convert" may be another program.
func imageMagick(ctx context.Context) (string, error) {
	names := []string{"magick", "convert-im6.q16", "convert-im7.q16"}
	look := func() (string, error) {
		for _, name := range names {
			if path, err := exec.LookPath(name); err == nil {
				return path, nil
			}
		}
		return "", fmt.Errorf("there is no ImageMagick here: none of %v", names)
	}
	path, err := look()
	if err == nil {
		return path, nil
	}
	if err := apt.Install(ctx, "bench: "+err.Error(), "imagemagick"); err != nil {
		return "", err
	}
	return look()
}

// drawPhotos fills a folder with pictures that are to a JPEG what photos are: shapes, gradients, fine
// patterns and noise, about 3 MB each.
func drawPhotos(dir string, n int) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var scenes [photoScenes][]byte
	for i := range scenes {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		m := image.NewRGBA(image.Rect(0, 0, photoWidth, photoHeight))
		for y := range photoHeight {
			for x := range photoWidth {
				fx, fy := float64(x), float64(y)
				v := 128 + 60*math.Sin(fx/97+float64(i)+math.Sin(fy/53)) + 40*math.Sin(fy/11+fx/31) + 6*r.NormFloat64()
				shade := func(v float64) uint8 { return uint8(max(0, min(255, v))) }
				m.SetRGBA(x, y, color.RGBA{shade(v), shade(v*0.8 + 20*math.Sin(fx/200)), shade(255 - v), 255})
			}
		}
		var b bytes.Buffer
		if err := jpeg.Encode(&b, m, &jpeg.Options{Quality: 90}); err != nil {
			return err
		}
		scenes[i] = b.Bytes()
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.jpg", i)), scenes[i%photoScenes], 0o600); err != nil {
			return err
		}
	}
	return nil
}
