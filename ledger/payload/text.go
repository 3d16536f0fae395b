package payload

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errHalfLetter means that JSON has a lone surrogate such as \ud800, half of a character of UTF-16. JSON should not
// have it (RFC 7493, section 2.1). Decoders replace it by U+FFFD, so different texts would become one.
var errHalfLetter = errors.New("half a letter (a lone surrogate)")

// CheckText refuses valid JSON with a lone surrogate in a text or a name. The error reports which, and at which byte.
func CheckText(json []byte) error {
	for at := 0; ; {
		i := bytes.IndexByte(json[at:], '\\') // in valid JSON only strings have it
		if i < 0 {
			return nil
		}
		at += i
		high := surrogate(json[at:])
		switch {
		case high == 0:
			at += 2
		case high < 0xdc00 && surrogate(json[at+6:]) >= 0xdc00:
			at += 12
		default:
			return fmt.Errorf("%w: %s at byte %d", errHalfLetter, json[at:at+6], at+1)
		}
	}
}

// surrogate returns the UTF-16 surrogate with whose escape the text begins; 0 if it begins with anything else.
func surrogate(text []byte) uint64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	if v, err := strconv.ParseUint(string(text[2:6]), 16, 16); err == nil && v&0xf800 == 0xd800 {
		return v
	}
	return 0
}
