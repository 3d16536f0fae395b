package photo

import (
	"bytes"
	"encoding/binary"
)

// orientation returns EXIF's number for the orientation of a picture (1 to 8, see [picture.Picture.Turn]), 1 if it has
// none. The number is in the first directory of a TIFF. The other formats have such a directory in one of their
// blocks. An invalid value counts as absent, since the pixels are not affected.
func orientation(format string, data []byte) int {
	if format == "tiff" {
		return max(1, turnOf(data))
	}
	at, ok := map[string]int{"jpeg": 2, "png": 8, "webp": 12}[format] // the first block
	for ok && at+8 <= len(data) {
		b := data[at:]
		var name string
		var header, size, trailer int
		switch format {
		case "jpeg":
			name, header, size = string(b[:2]), 4, int(binary.BigEndian.Uint16(b[2:]))-2
		case "png":
			name, header, size, trailer = string(b[4:8]), 8, int(binary.BigEndian.Uint32(b)), 4
		case "webp":
			name, header, size = string(b[:4]), 8, int(binary.LittleEndian.Uint32(b[4:]))
			trailer = size & 1
		}
		if size < 0 || size > len(b)-header || format == "jpeg" && (b[0] != 0xff || b[1] == 0xda) { // 0xda: the pixels begin
			break
		}
		if name == "\xff\xe1" || name == "eXIf" || name == "EXIF" { // the names in JPEG, PNG, WebP
			if turn := turnOf(bytes.TrimPrefix(b[header:header+size], []byte("Exif\x00\x00"))); turn > 0 {
				return turn
			}
		}
		at += header + size + trailer
	}
	return 1
}

// turnOf finds the orientation in the first directory of a TIFF, 0 if there is none.
func turnOf(tiff []byte) int {
	if turn := tagsOf(tiff)[tagOrientation]; turn <= 8 {
		return int(turn)
	}
	return 0
}
