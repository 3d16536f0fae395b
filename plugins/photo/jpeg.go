package photo

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// endMark is the end of a JPEG.
const endMark = "\xff\xd9"

// lacksEnd reports whether a JPEG lacks its end mark but has all scans: those that give every coefficient of every
// component to the last bit (T.81, B.2.3 and G.1.1). The decoder checks whether the last scan is complete, because it
// stops at an end mark. Between two scans it would stop as well, and omit details or colours.
func lacksEnd(b []byte) bool {
	if !bytes.HasPrefix(b, []byte("\xff\xd8")) || bytes.HasSuffix(b, []byte(endMark)) {
		return false
	}
	progressive, missing := false, map[byte]uint64{} // one bit per coefficient, by component
	for b = b[2:]; ; {
		at := bytes.IndexByte(b, 0xff)
		if at < 0 || at+1 == len(b) {
			break
		}
		marker := b[at+1]
		switch b = b[at+1:]; {
		case marker == 0xff: // padding
			continue
		case marker == 0, marker >= 0xd0 && marker <= 0xd7: // part of a scan
			continue
		case marker == endMark[1], len(b) < 3, len(b)-1 < int(binary.BigEndian.Uint16(b[1:])):
			return false
		}
		size := 1 + int(binary.BigEndian.Uint16(b[1:]))
		segment := b[min(3, size):size]
		b = b[size:]
		switch {
		case marker >= 0xc0 && marker <= 0xc2 && len(segment) > 6: // the frame
			progressive = marker == 0xc2
			for component := range slices.Chunk(segment[6:], 3) {
				missing[component[0]] = ^uint64(0)
			}
		case marker == 0xda && len(segment) > 0: // a scan
			ends := 1 + 2*int(segment[0])
			if len(segment) < ends+3 {
				return false
			}
			given := ^uint64(0)
			if first, last, low := segment[ends], segment[ends+1], segment[ends+2]&15; progressive && low > 0 {
				given = 0 // the scan lacks the last bits
			} else if progressive {
				given = given << first & (given >> (63 - last))
			}
			for component := range slices.Chunk(segment[1:ends], 2) {
				missing[component[0]] &^= given
			}
		}
	}
	for _, coefficients := range missing {
		if coefficients != 0 {
			return false
		}
	}
	return len(missing) > 0
}
