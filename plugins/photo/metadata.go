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
	maxEntries = 1_000   // of a directory of a TIFF
)

const (
	tagOrientation = 0x0112
	tagProfile     = 0x8773
)

// metadata finds the two things in a picture's metadata that matter for how it looks: how it is to be
// turned (1 to 8, see [raster.turn]) and its colour profile, or nil. What is wrong or too large is
// taken for absent: a picture is not worse for it.
func (s *source) metadata() (turn int, profile []byte) {
	turn = 1
	if s.format.name == "tiff" {
		return readTIFF(s)
	}
	parts := map[int][]byte{} // a JPEG's profile may be in several
	for name, data := range s.blocks() {
		switch {
		case name == "\xe1" && turn == 1 && startsWith(data, "Exif\x00\x00"):
			turn, _ = readTIFF(section(data, 6))
		case name == "eXIf" && turn == 1:
			turn, _ = readTIFF(data)
		case name == "EXIF" && turn == 1:
			if startsWith(data, "Exif\x00\x00") {
				data = section(data, 6)
			}
			turn, _ = readTIFF(data)
		case name == "\xe2" && startsWith(data, "ICC_PROFILE\x00"):
			part := read(section(data, 12))
			if len(part) > 2 && parts[int(part[0])] == nil {
				parts[int(part[0])] = part[2:]
			}
		case name == "iCCP":
			_, packed, _ := bytes.Cut(read(data), []byte{0})
			if z, err := zlib.NewReader(bytes.NewReader(packed[min(1, len(packed)):])); err == nil {
				profile = read(z)
			}
		case name == "ICCP":
			profile = read(data)
		}
	}
	for i := 1; parts[i] != nil && len(profile) < maxProfile; i++ {
		profile = append(profile, parts[i]...)
	}
	if len(profile) < 128 || len(profile) > maxProfile || string(profile[36:40]) != "acsp" {
		profile = nil
	}
	return turn, profile
}

// blocks are the parts of a JPEG before its pixels (named by their marker), of a PNG or of a WebP.
func (s *source) blocks() iter.Seq2[string, *io.SectionReader] {
	return func(yield func(string, *io.SectionReader) bool) {
		at := map[string]int64{"jpeg": 2, "png": 8, "webp": 12}[s.format.name]
		if at == 0 {
			return
		}
		for range maxBlocks {
			var b [8]byte
			if n, _ := s.ReadAt(b[:], at); n < 4 {
				return
			}
			var name string
			var begin, size, next int64
			switch s.format.name {
			case "jpeg":
				if b[0] != 0xff || b[1] == 0xda || b[1] == 0xd9 {
					return
				}
				size = int64(binary.BigEndian.Uint16(b[2:])) - 2
				name, begin, next = string(b[1:2]), at+4, at+4+size
			case "png":
				size = int64(binary.BigEndian.Uint32(b[:]))
				name, begin, next = string(b[4:]), at+8, at+12+size
			case "webp":
				size = int64(binary.LittleEndian.Uint32(b[4:]))
				name, begin, next = string(b[:4]), at+8, at+8+size+size&1
			}
			if size < 0 || !yield(name, io.NewSectionReader(s, begin, size)) {
				return
			}
			at = next
		}
	}
}

func section(r *io.SectionReader, from int64) *io.SectionReader {
	return io.NewSectionReader(r, from, max(0, r.Size()-from))
}

func startsWith(r *io.SectionReader, text string) bool {
	b := make([]byte, len(text))
	n, _ := r.ReadAt(b, 0)
	return string(b[:n]) == text
}

// read reads all of what may be a profile, and a byte more than that may have.
func read(r io.Reader) []byte {
	b, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err != nil {
		return nil
	}
	return b
}

// readTIFF looks into the first directory of a TIFF, which Exif is, too.
func readTIFF(r io.ReaderAt) (turn int, profile []byte) {
	turn = 1
	b := make([]byte, 8)
	if _, err := r.ReadAt(b, 0); err != nil {
		return turn, nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch string(b[:4]) {
	case "II*\x00":
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return turn, nil
	}
	at := int64(order.Uint32(b[4:]))
	if _, err := r.ReadAt(b[:2], at); err != nil {
		return turn, nil
	}
	at += 2
	entry := make([]byte, 12) // tag, type, count, value or where it is
	for range min(order.Uint16(b), maxEntries) {
		if n, _ := r.ReadAt(entry, at); n < len(entry) {
			break
		}
		at += int64(len(entry))
		count, value := order.Uint32(entry[4:]), order.Uint32(entry[8:])
		switch order.Uint16(entry) {
		case tagOrientation:
			if v := int(order.Uint16(entry[8:])); v >= 1 && v <= 8 {
				turn = v
			}
		case tagProfile:
			profile = read(io.NewSectionReader(r, int64(value), int64(count)))
		}
	}
	return turn, profile
}

// fits says whether a profile is about the colours that a raster has: that of a CMYK picture is not.
func fits(profile []byte, r *raster) bool {
	if len(r.planes) == 1 && r.gray() {
		return string(profile[16:20]) == "GRAY"
	}
	return string(profile[16:20]) == "RGB "
}
