package webtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// screens are the pictures of README and docs, by the name of the file.
var screens = []struct {
	name, at, colours string
	width             int64
}{
	{"today", "/", "light", 1280},
	{"items", "/items?where=state:dead", "dark", 1280},
	{"item", "/items/24", "light", 1280},
	{"causes", "/causes", "light", 1280},
	{"phone", "/", "light", 360},
}

// takeScreens writes the pictures into a folder.
func takeScreens(into string) error {
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	defer end()
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	// The server reads the causes at the first request, and then has them in memory for the pictures.
	if err := chromedp.Do(ctx, chromedp.Navigate(work.link), chromedp.Navigate(work.base+"/causes"),
		chromedp.Navigate(work.base+"/causes")); err != nil {
		return err
	}
	for _, s := range screens {
		if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: s.width, Height: 760, DeviceScaleFactor: 1}); err != nil {
			return err
		}
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.colours},
				{Name: "prefers-reduced-motion", Value: "reduce"}}}); err != nil {
			return err
		}
		if err := chromedp.Do(ctx, chromedp.Navigate(work.base+s.at), chromedp.WaitVisible("#live:not(:empty)")); err != nil {
			return fmt.Errorf("%s: %w", s.at, err)
		}
		shot, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{})
		if err != nil {
			return err
		}
		small, err := quantised(shot.Data)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(into, s.name+".png"), small, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// quantised returns a picture with at most 256 colours. The file is smaller then. Pages have few colours: most others
// are the edges of letters.
func quantised(picture []byte) ([]byte, error) {
	in, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	seen := map[color.Color]int{}
	b := in.Bounds()
	for y := range b.Dy() {
		for x := range b.Dx() {
			seen[in.At(x, y)]++
		}
	}
	often := slices.SortedFunc(maps.Keys(seen), func(a, b color.Color) int { return cmp.Compare(seen[b], seen[a]) })
	colours := color.Palette(often[:min(len(often), 32)]) // grounds and texts
	taken := map[[3]uint32]bool{}
	for _, c := range often { // then one of each shade, so that small coloured signs keep theirs
		r, g, b, _ := c.RGBA()
		shade := [3]uint32{r >> 12, g >> 12, b >> 12}
		if !taken[shade] && len(colours) < 256 {
			colours = append(colours, c)
		}
		taken[shade] = true
	}
	out := image.NewPaletted(b, colours)
	near := map[color.Color]uint8{} // colour → its nearest colour in the palette
	for y := range b.Dy() {
		for x := range b.Dx() {
			c := in.At(x, y)
			i, known := near[c]
			if !known {
				i = uint8(colours.Index(c))
				near[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	var text bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&text, out)
	return text.Bytes(), err
}
