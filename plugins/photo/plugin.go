package photo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ledgerd/ledgerd/plugins/photo/internal/picture"
	"github.com/ledgerd/ledgerd/sdk"
)

const doc = `Makes smaller pictures and thumbnails of photos.

    ledgerd run photo ./pictures --with out_dir=/srv/thumbs
    ledgerd run photo ./pictures --with out_dir=/srv/thumbs --set sizes=big=2048x2048,icon=64x64:fill
    ledgerd run photo a.png --with out_dir=/srv/thumbs --set format=png --set name='{size}/{stem}.{ext}'

Takes JPEG, PNG, GIF, WebP, TIFF and BMP, turns them by EXIF, leaves out all metadata, and
writes JPEG or PNG. A picture is never enlarged. Files that are up to date are left alone, and a file
that this plugin has not made of the same picture is never written over. Formats and sorts of pictures
that are not read (HEIC, AVIF, raw photos …) fail as ` + "`unsupported`" + `.
`

// In is the payload: the picture and the files to make.
type In struct {
	Path    string   `json:"path" input:"file" doc:"the picture"`
	Sizes   []string `json:"sizes" default:"[\"large=1600x1600\",\"medium=800x800\",\"thumb=200x200:fill\"]" schema:"minItems=1,maxItems=20,pattern=^[A-Za-z0-9_-]{1,32}=[1-9][0-9]{0,4}x[1-9][0-9]{0,4}(:(fit|fill|crop))?$" doc:"NAME=WIDTHxHEIGHT or NAME=WIDTHxHEIGHT:MODE, in pixels; fit (the mode when none is named): the whole picture, no larger than the size; fill: the size filled, what stands over cut off; crop: the size cut out of the middle, not scaled"`
	Format  string   `json:"format" default:"jpeg" schema:"enum=jpeg|png" doc:"what to write; in a JPEG, what is transparent becomes white"`
	Quality int      `json:"quality" default:"85" schema:"min=1,max=100" doc:"of a JPEG"`
	Name    string   `json:"name" default:"{stem}-{size}.{ext}" schema:"maxLength=500,pattern=^([^{}]|[{](stem|size|ext|folder|hash)[}])+$" doc:"file below out_dir, of {stem} {size} {ext} {folder} {hash}"`
}

// Out is the output: facts about the picture, and the files.
type Out struct {
	Format string `json:"format,omitempty" doc:"jpeg, png, gif, webp, tiff or bmp"`
	Width  int    `json:"width,omitempty" doc:"pixels, the picture the right way up"`
	Height int    `json:"height,omitempty" doc:"pixels"`
	Bytes  int64  `json:"bytes,omitempty" doc:"of the file"`
	Files  []File `json:"files,omitempty" doc:"one for each of the sizes"`
}

// File is a file for one size.
type File struct {
	Size     string `json:"size" doc:"name of the size"`
	Path     string `json:"path" doc:"absolute path"`
	Width    int    `json:"width,omitempty" doc:"pixels; none if the picture was not looked into"`
	Height   int    `json:"height,omitempty" doc:"pixels"`
	UpToDate bool   `json:"up_to_date,omitempty" doc:"it was there, made of the same picture by the same settings"`
}

// Config is what this machine allows.
type Config struct {
	OutDir    string `json:"out_dir" schema:"required" doc:"folder that everything is written to, made if it is not there; an absolute path"`
	MaxBytes  int64  `json:"max_bytes" tune:"true" default:"268435456" schema:"min=1" doc:"largest file that is read, in bytes"`
	MaxPixels int64  `json:"max_pixels" tune:"true" default:"100000000" schema:"min=1" doc:"largest picture that is decoded, in pixels"`
	Memory    int64  `json:"memory" tune:"true" default:"2147483648" schema:"min=1" doc:"for all pictures that are worked at the same time, in bytes; one that may need more is worked alone"`

	room *semaphore.Weighted // of Memory
}

// Validate refuses a folder that depends on where the plugin was started.
func (c *Config) Validate() error {
	if !filepath.IsAbs(c.OutDir) {
		return fmt.Errorf("out_dir: %q is not an absolute path", c.OutDir)
	}
	return nil
}

// Open makes the folder.
func (c *Config) Open(context.Context) error {
	c.room = semaphore.NewWeighted(c.Memory)
	return os.MkdirAll(c.OutDir, 0o755)
}

// Plugin returns the plugin.
func Plugin() *sdk.Plugin {
	p := sdk.New("photo", "0.1.0", work)
	p.Doc = doc
	p.Timeout = 10 * time.Minute
	p.Match = []string{"*.jpg", "*.jpeg", "*.png", "*.gif", "*.webp", "*.tif", "*.tiff", "*.bmp"}
	return p
}

// work is the plugin's function.
func work(ctx context.Context, cfg *Config, it sdk.Item[In]) (Out, error) {
	return resize(ctx, cfg, it.Payload, it.Attempt, func(read, size int64) { it.Progress(read, size, "bytes") })
}

// resize makes the files of a picture that are missing or out of date.
func resize(ctx context.Context, cfg *Config, in In, attempt int64, progress func(read, size int64)) (out Out,
	err error) {
	sizes := parseSizes(in.Sizes)
	src, err := open(ctx, cfg, in.Path)
	if err != nil {
		return out, err
	}
	defer src.file.Close()
	need := min(src.memory(sizes), cfg.Memory)
	if err := cfg.room.Acquire(ctx, need); err != nil {
		return out, context.Cause(ctx)
	}
	defer cfg.room.Release(need)
	data, err := src.read(ctx, cfg)
	if err != nil {
		return out, err
	}
	out = Out{Format: src.format, Bytes: src.size}
	t, err := openTarget(ctx, cfg.OutDir, in, sizes, data, attempt)
	if err != nil {
		return out, err
	}
	defer t.root.Close()
	var files []File
	missing := false
	for i, name := range t.names {
		upToDate, err := t.upToDate(name)
		if err != nil {
			return out, err
		}
		missing = missing || !upToDate
		files = append(files, File{Size: sizes[i].name, Path: filepath.Join(cfg.OutDir, name), UpToDate: upToDate})
	}
	if !missing {
		out.Files = files
		return out, sdk.Skip("all files are up to date")
	}
	pic, err := decode(ctx, data, progress)
	if err != nil {
		return out, err
	}
	turn := orientation(src.format, data)
	out.Width, out.Height = picture.Turned(pic.Size().X, pic.Size().Y, turn)
	// All sizes are made, since small ones are made from larger ones: so a file does not depend on which others are
	// missing.
	err = each(ctx, pic, sizes, turn, func(i int, scaled picture.Picture) error {
		f := &files[i]
		if f.Width, f.Height = scaled.Size().X, scaled.Size().Y; f.UpToDate {
			return nil
		}
		return t.write(t.names[i], scaled)
	})
	if err == nil {
		err = t.syncFolders()
	}
	if err == nil {
		out.Files = files
	}
	return out, err
}
