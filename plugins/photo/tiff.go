package photo

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// The tags of a TIFF's directory that decide how its pixels are stored, by TIFF 6.0 and, for the last one, by DNG.
const (
	tagSubfile     = 254 // bit 0: a smaller copy of another picture in the file
	tagCompression = 259
	tagFillOrder   = 266 // 2: the first pixel of a byte is its lowest bit
	tagOrientation = 274
	tagSamples     = 277
	tagPlanar      = 284 // 2: one plane per colour
	tagDNGVersion  = 50706
)

// tagsOf returns the values in the first directory of a TIFF, the first value of each tag. An invalid value counts as
// absent.
func tagsOf(b []byte) map[uint16]uint32 {
	var order binary.ByteOrder = binary.LittleEndian
	if bytes.HasPrefix(b, []byte("MM\x00*")) {
		order = binary.BigEndian
	} else if !bytes.HasPrefix(b, []byte("II*\x00")) {
		return nil
	}
	if len(b) < 8 || int64(order.Uint32(b[4:])) > int64(len(b)-2) {
		return nil
	}
	directory := b[order.Uint32(b[4:]):]
	entries, tags := directory[2:], map[uint16]uint32{}
	for range order.Uint16(directory) {
		if len(entries) < 12 {
			break
		}
		tag, value := order.Uint16(entries), uint32(0)
		switch order.Uint16(entries[2:]) { // the type
		case 1:
			value = uint32(entries[8])
		case 3:
			value = uint32(order.Uint16(entries[8:]))
		case 4:
			value = order.Uint32(entries[8:])
		}
		if tags[tag] == 0 {
			tags[tag] = value
		}
		entries = entries[12:]
	}
	return tags
}

// checkTIFF refuses a TIFF that the decoder would decode wrongly.
func checkTIFF(data []byte) error {
	tags := tagsOf(data)
	fax := tags[tagCompression] >= 2 && tags[tagCompression] <= 4 // their decoder supports both orders
	switch _, dng := tags[tagDNGVersion]; {
	case dng, tags[tagSubfile]&1 != 0:
		return errors.New("a raw photo (DNG, NEF …), or a TIFF that begins with a preview of another picture")
	case tags[tagPlanar] == 2 && tags[tagSamples] > 1:
		return errors.New("a TIFF with its colours in planes of their own (PlanarConfiguration 2)")
	case tags[tagFillOrder] == 2 && !fax:
		return errors.New("a TIFF whose bytes are filled from the lowest bit (FillOrder 2)")
	}
	return nil
}
