package photo

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"iter"
)

const (
	maxProfile = 4 << 20 // bytes of a colour profile; those of printers have two million
	maxBlocks  = 10_000  // of a file that are looked at
)

const (
	tagOrientation = 0x0112
	tagProfile     = 0x8773
)

// metadata finds the two things in a picture's metadata that matter for how it looks: how it is to be
// turned (1 to 8, see [raster.turn]) and its colour profile, or nil. What is wrong or too large is
// taken for absent: the pixels are no worse for it.
func (s *source) metadata() (turn int, profile []byte) {
	if s.format.name == "tiff" {
		turn, profile = readTIFF(s)
	}
	for name, data := range s.blocks() {
		switch name {
		case "\xe1", "eXIf", "EXIF": // of JPEG, PNG, WebP
			if turn == 0 {
				turn, _ = readTIFF(after("Exif\x00\x00", data))
			}
		case "\xe2":
			if part := after("ICC_PROFILE\x00", data); part != data && len(profile) <= maxProfile { // number and count, in order
				profile = append(profile, read(io.NewSectionReader(part, 2, part.Size()))...)
			}
		case "iCCP", "ICCP":
			if profile == nil {
				profile = read(data)
			}
		}
	}
	if s.format.name == "png" {
		profile = unpack(profile)
	}
	if len(profile) < 128 || len(profile) > maxProfile || string(profile[36:40]) != "acsp" {
		profile = nil
	}
	return max(turn, 1), profile
}

// blocks are the parts of a JPEG before its pixels, named by their marker, or those of a PNG or a WebP.
func (s *source) blocks() iter.Seq2[string, *io.SectionReader] {
	return func(yield func(string, *io.SectionReader) bool) {
		at := map[string]int64{"jpeg": 2, "png": 8, "webp": 12}[s.format.name]
		for range maxBlocks {
			var b [8]byte
			if n, _ := s.ReadAt(b[:], at); n < 4 || at == 0 {
				return
			}
			var name string
			var header, size, trailer int64
			switch s.format.name {
			case "jpeg":
				if b[0] != 0xff || b[1] == 0xda {
					return
				}
				name, header, size = string(b[1:2]), 4, int64(binary.BigEndian.Uint16(b[2:]))-2
			case "png":
				name, header, size, trailer = string(b[4:]), 8, int64(binary.BigEndian.Uint32(b[:])), 4
			case "webp":
				name, header, size = string(b[:4]), 8, int64(binary.LittleEndian.Uint32(b[4:]))
				trailer = size & 1
			}
			if size < 0 || !yield(name, io.NewSectionReader(s, at+header, size)) {
				return
			}
			at += header + size + trailer
		}
	}
}

// after is what follows a text, or all of it if the text is not there.
func after(text string, r *io.SectionReader) *io.SectionReader {
	b := make([]byte, len(text))
	if n, _ := r.ReadAt(b, 0); string(b[:n]) != text {
		return r
	}
	return io.NewSectionReader(r, int64(len(text)), r.Size()-int64(len(text)))
}

// read reads what may be a profile, and a byte more than one may have.
func read(r io.Reader) []byte {
	b, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err != nil {
		return nil
	}
	return b
}

// unpack is the profile in the iCCP of a PNG: a name, a zero, the method (there is one), and packed data.
func unpack(chunk []byte) []byte {
	_, packed, _ := bytes.Cut(chunk, []byte{0})
	z, err := zlib.NewReader(bytes.NewReader(packed[min(1, len(packed)):]))
	if err != nil {
		return nil
	}
	return read(z)
}

// readTIFF looks into the first directory of a TIFF, which Exif is, too. A turn of 0 means that it is
// no TIFF.
func readTIFF(r io.ReaderAt) (turn int, profile []byte) {
	b := make([]byte, 12)
	if n, _ := r.ReadAt(b[:8], 0); n < 8 {
		return 0, nil
	}
	var order binary.ByteOrder
	switch string(b[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 0, nil
	}
	at := int64(order.Uint32(b[4:])) + 2
	if n, _ := r.ReadAt(b[:2], at-2); n < 2 {
		return 1, nil
	}
	turn = 1
	for range order.Uint16(b) {
		if n, _ := r.ReadAt(b, at); n < len(b) { // tag, type, count, value or where it is
			break
		}
		switch order.Uint16(b) {
		case tagOrientation:
			if v := int(order.Uint16(b[8:])); v >= 1 && v <= 8 {
				turn = v
			}
		case tagProfile:
			if profile == nil {
				profile = read(io.NewSectionReader(r, int64(order.Uint32(b[8:])), int64(order.Uint32(b[4:]))))
			}
		}
		at += int64(len(b))
	}
	return turn, profile
}

// fits says whether a profile is about the colours that a raster has: that of a CMYK picture is not.
func fits(profile []byte, r *raster) bool {
	space := "RGB "
	if r.gray() {
		space = "GRAY"
	}
	return string(profile[16:20]) == space
}
