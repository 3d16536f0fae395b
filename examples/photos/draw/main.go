// Command draw draws pictures to try the photo plugin with:
//
//	draw FOLDER
//
// It draws a beach, a picture of a phone that was held upright (stored on its side, with its orientation),
// a logo without a background, and a copy of the beach that was cut off in the middle.
package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"path/filepath"
)

// onItsSide is a segment of a JPEG: Exif with the orientation 6, "to be turned to the right".
const onItsSide = "\xff\xe1\x00\x22Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: draw FOLDER")
		os.Exit(2)
	}
	if err := draw(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "draw:", err)
		os.Exit(1)
	}
}

func draw(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var beach, phone, logo bytes.Buffer
	if err := jpeg.Encode(&beach, painted(2000, 1300), nil); err != nil {
		return err
	}
	if err := jpeg.Encode(&phone, painted(1200, 900), nil); err != nil {
		return err
	}
	if err := png.Encode(&logo, ring(500)); err != nil {
		return err
	}
	for name, content := range map[string]string{
		"beach.jpg": beach.String(),
		"phone.jpg": phone.String()[:2] + onItsSide + phone.String()[2:],
		"logo.png":  logo.String(),
		"torn.jpg":  beach.String()[:beach.Len()/2],
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// painted paints a sky with a sun over a sea with waves.
func painted(w, h int) image.Image {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			fx, fy := float64(x)/float64(w), float64(y)/float64(h)
			c := color.RGBA{uint8(90 + 120*fy), uint8(140 + 60*fy), 230, 255}
			switch {
			case math.Hypot((fx-0.7)*float64(w)/float64(h), fy-0.25) < 0.1:
				c = color.RGBA{255, 230, 120, 255}
			case fy > 0.55+0.01*math.Sin(fx*40):
				c = color.RGBA{20, uint8(90 + 40*math.Sin(fy*90+3*math.Sin(fx*20))), 150, 255}
			}
			m.SetRGBA(x, y, c)
		}
	}
	return m
}

// ring draws a ring; the rest is transparent.
func ring(side int) image.Image {
	m := image.NewNRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			if r := math.Hypot(float64(x-side/2), float64(y-side/2)) / float64(side); r > 0.3 && r < 0.45 {
				m.SetNRGBA(x, y, color.NRGBA{200, 30, 60, 255})
			}
		}
	}
	return m
}
