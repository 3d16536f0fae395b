package photo

import (
	"errors"
	"image"
	"image/draw"
	"image/jpeg"
	"image/png"
	"math"
	"regexp"
	"sync"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
)

// format is a format that the plugin does not read, with the bytes at the start of its files.
type format struct {
	name   string
	begins *regexp.Regexp
}

// others are the formats that are not read. Their patterns are compiled when the first picture cannot be read, because
// otherwise each start of the program would pay for them.
var others = sync.OnceValue(func() []format {
	return []format{
		{"AVIF", regexp.MustCompile(`(?s)^....ftyp(....){0,8}avi[fs]`)},
		{"HEIC", regexp.MustCompile(`(?s)^....ftyp(hei|hev|mif1|msf1)`)},
		{"raw photo (CR3)", regexp.MustCompile(`(?s)^....ftypcrx `)},
		{"JPEG XL", regexp.MustCompile(`^(\xff\x0a|\x00\x00\x00\x0cJXL \r\n\x87\n)`)},
		{"JPEG 2000", regexp.MustCompile(`^(\x00\x00\x00\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51)`)},
		{"Photoshop file (PSD)", regexp.MustCompile(`^8BPS\x00[\x01\x02]`)},
		{"BigTIFF", regexp.MustCompile(`^(II\+\x00|MM\x00\+)`)},
		{"raw photo (RW2)", regexp.MustCompile(`^IIU\x00`)},
		{"raw photo (ORF)", regexp.MustCompile(`^IIR[OS]`)},
		{"raw photo (RAF)", regexp.MustCompile(`^FUJIFILMCCD-RAW`)},
		{"raw photo (X3F)", regexp.MustCompile(`^FOVb`)},
		{"icon (ICO, CUR)", regexp.MustCompile(`(?s)^\x00\x00[\x01\x02]\x00[\x01-\xff]\x00...\x00`)},
		{"PNM (PBM, PGM, PPM, PAM)", regexp.MustCompile(`^P[1-7fF][ \t\r\n]`)},
		{"SVG", regexp.MustCompile(`(?is)^(\xef\xbb\xbf)?\s*(<\?xml.{0,400})?(<!--.{0,400}-->\s*)?(<!DOCTYPE )?<?svg[\s>]`)},
		{"PDF", regexp.MustCompile(`^%PDF-`)},
	}
})

// other returns the name of a format that is not read, "" if it is unknown. Regular expressions match runes, so each
// byte becomes a rune.
func other(head []byte) string {
	runes := make([]rune, len(head))
	for i, b := range head {
		runes[i] = rune(b)
	}
	for _, o := range others() {
		if o.begins.MatchString(string(runes)) {
			return o.name
		}
	}
	return ""
}

// unread reports whether a decoder knows the format, but does not support this type of it.
func unread(err error) bool {
	_, isJPEG := errors.AsType[jpeg.UnsupportedError](err)
	_, isPNG := errors.AsType[png.UnsupportedError](err)
	_, isTIFF := errors.AsType[tiff.UnsupportedError](err)
	return isJPEG || isPNG || isTIFF || errors.Is(err, bmp.ErrUnsupported)
}

// onScreen places the first frame of a GIF on its screen. The rest is transparent, as in browsers.
func onScreen(frame image.Image, screen image.Rectangle) image.Image {
	if frame.Bounds() == screen {
		return frame
	}
	m := image.NewRGBA(screen)
	draw.Draw(m, frame.Bounds(), frame, frame.Bounds().Min, draw.Src)
	return m
}

// fullRange spreads the brightness of a WebP from 16 … 235 to 0 … 255, and its chroma from 16 … 240. VP8 stores these
// ranges (ITU-R BT.601), and the decoder does not convert them.
func fullRange(m image.Image) {
	var p *image.YCbCr
	switch m := m.(type) {
	case *image.YCbCr:
		p = m
	case *image.NYCbCrA:
		p = &m.YCbCr
	default: // a lossless WebP has RGB, not YCbCr
		return
	}
	spread := func(plane []byte, from, to, width float64) {
		var table [256]byte
		for v := range table {
			table[v] = byte(min(max(math.Round(to+(float64(v)-from)*255/width), 0), 255))
		}
		for i, v := range plane {
			plane[i] = table[v]
		}
	}
	spread(p.Y, 16, 0, 219)
	spread(p.Cb, 128, 128, 224)
	spread(p.Cr, 128, 128, 224)
}
