package filecsv

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"golang.org/x/text/transform"
)

// Encodings that a byte order mark names, by their names in payload and output.
const (
	encAuto    = "auto"
	encUTF8    = "utf-8"
	encUTF16   = "utf-16"
	encUTF16LE = "utf-16le"
	encUTF16BE = "utf-16be"
	encUTF32LE = "utf-32le"
	encUTF32BE = "utf-32be"
)

// marks are the byte order marks. The mark of utf-32le begins like that of utf-16le, so it comes first.
var marks = []struct{ mark, encoding string }{
	{"\xef\xbb\xbf", encUTF8}, {"\xff\xfe\x00\x00", encUTF32LE}, {"\x00\x00\xfe\xff", encUTF32BE},
	{"\xff\xfe", encUTF16LE}, {"\xfe\xff", encUTF16BE},
}

// marked are the decoders of the encodings with a byte order mark, but for UTF-8. decode removes the mark.
var marked = map[string]encoding.Encoding{
	encUTF16LE: unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM),
	encUTF16BE: unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
	encUTF32LE: utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM),
	encUTF32BE: utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM),
}

// encodingOf is the encoding of a text.
type encodingOf struct {
	name  string
	table encoding.Encoding // nil for UTF-8, and if only a mark names it
}

// newEncoding finds an encoding by its IANA or web name.
func newEncoding(name string) (encodingOf, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	switch name {
	case encAuto, encUTF8, encUTF16, encUTF16LE, encUTF16BE, encUTF32LE, encUTF32BE:
		return encodingOf{name, marked[name]}, nil
	case "utf8":
		return encodingOf{name: encUTF8}, nil
	}
	table, err := ianaindex.IANA.Encoding(name)
	if err != nil || table == nil {
		table, err = htmlindex.Get(name)
	}
	if err != nil {
		return encodingOf{}, refuse("bad_check", "encoding: %q is not known; there are utf-8, utf-16le, windows-1252, "+
			"iso-8859-1, shift_jis, koi8-r, gb18030 and others", shown(name))
	}
	for _, index := range []*ianaindex.Index{ianaindex.IANA, ianaindex.MIME} { // MIME names are better known
		if known, err := index.Name(table); err == nil {
			name = strings.ToLower(known)
		}
	}
	return encodingOf{name, table}, nil
}

// nel is the line end of mainframes.
const nel = 0x85

// undefined returns the offset of the first character in decoded text that stands for bytes that the encoding does
// not define, or -1. The decoders turn such bytes into U+FFFD, so a file that has this character itself is refused too.
// Those of windows code pages turn them into control characters. So does a file in a windows code page that is read as
// its neighbour of ISO 8859. That has control characters there; of these only the line end NEL is in use.
func (e encodingOf) undefined(text []byte) int {
	if e.table == nil {
		return -1
	}
	bad := bytes.IndexRune(text, utf8.RuneError)
	iso := strings.HasPrefix(e.name, "iso-8859-")
	if iso || strings.HasPrefix(e.name, "windows-") {
		c1 := bytes.IndexFunc(text, func(c rune) bool { return c >= 0x80 && c < 0xa0 && !(iso && c == nel) })
		if bad < 0 || c1 >= 0 && c1 < bad {
			return c1
		}
	}
	return bad
}

// decode returns src as UTF-8 without a byte order mark, the length of the mark, and the encoding of src. With auto,
// the mark names the encoding, and without a mark it is UTF-8. Nothing is guessed or replaced. The reader of text
// checks that it is valid UTF-8, see firstBad.
func decode(src *bufio.Reader, declared encodingOf) (text io.Reader, mark int, found encodingOf, err error) {
	start, err := src.Peek(4)
	if err != nil && err != io.EOF {
		return nil, 0, found, err
	}
	found = declared
	for _, m := range marks {
		if !bytes.HasPrefix(start, []byte(m.mark)) {
			continue
		}
		if declared.name != encAuto && !strings.HasPrefix(m.encoding, declared.name) {
			return nil, 0, found, refuse(badEncoding, "the file has the byte order mark of %s, not of %s", m.encoding,
				declared.name)
		}
		found = encodingOf{m.encoding, marked[m.encoding]}
		for ; bytes.HasPrefix(start, []byte(m.mark)); start, _ = src.Peek(len(m.mark)) { // joined files may have two
			n, err := src.Discard(len(m.mark))
			if mark += n; err != nil {
				return nil, 0, found, err
			}
		}
		break
	}
	switch found.name {
	case encAuto, encUTF8:
		return src, mark, encodingOf{name: encUTF8}, nil
	case encUTF16:
		return nil, 0, found, refuse(badEncoding, "the file has no byte order mark: --set encoding=utf-16le or utf-16be")
	}
	return transform.NewReader(src, found.table.NewDecoder()), mark, found, nil
}

// firstBad returns the offset of the first byte of b that is NUL or not UTF-8, else -1, and how many bytes it has
// checked. Unless b is the end of the text, an incomplete character at its end does not count.
func firstBad(b []byte, atEnd bool) (bad, looked int) {
	text, nul := b, bytes.IndexByte(b, 0)
	if nul >= 0 {
		text = b[:nul]
	} else if !atEnd {
		text = b[:len(b)-cutOff(b)]
	}
	if !utf8.Valid(text) {
		for i := 0; ; {
			c, size := utf8.DecodeRune(text[i:])
			if c == utf8.RuneError && size == 1 {
				return i, i
			}
			i += size
		}
	}
	return nul, len(text)
}

// cutOff returns how many bytes at the end of b are the beginning of a character.
func cutOff(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if end := b[len(b)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

// notText explains the byte that firstBad found at offset bad of block. passed bytes precede the block. A NUL
// anywhere in the block is a clearer sign than the first byte that is not UTF-8.
func notText(block []byte, bad int, passed int64) error {
	nul := bytes.IndexByte(block, 0)
	if enc := looksLikeUTF16(block); enc != "" {
		return refuse(badEncoding, "NUL at byte %s, looks like %s without a byte order mark; if it is: --set encoding=%s",
			humanize.Comma(passed+int64(nul)), enc, enc)
	}
	what := http.DetectContentType(block)
	switch text := strings.HasPrefix(what, "text/") || what == "image/bmp"; { // it detects a bitmap by two letters only
	case passed <= 3 && !text && what != "application/octet-stream":
		return refuse("binary", "not a text file: it is %s", what)
	case nul >= 0:
		return refuse("binary", "not a text file: NUL at byte %s", humanize.Comma(passed+int64(nul)))
	case passed <= 3 && !text:
		return refuse("binary", "not a text file: it is neither UTF-8 nor free of control characters")
	}
	return refuse(badEncoding, "not UTF-8 at byte %s; name its encoding: --set encoding=…\nwindows-1252, iso-8859-2, "+
		"shift_jis, gb18030, koi8-r and others", humanize.Comma(passed+int64(bad)))
}

// looksLikeUTF16 returns the encoding of UTF-16 text that is mostly ASCII: about every second byte is NUL.
func looksLikeUTF16(b []byte) string {
	var nul [2]int
	for i, c := range b {
		if c == 0 {
			nul[i%2]++
		}
	}
	switch {
	case nul[1] > len(b)/4 && nul[1] > 8*nul[0]:
		return encUTF16LE
	case nul[0] > len(b)/4 && nul[0] > 8*nul[1]:
		return encUTF16BE
	}
	return ""
}

// notRows refuses a text that is no table: a web page instead of a download, XML, or an empty file.
func notRows(text []byte) error {
	start := bytes.ToLower(bytes.TrimSpace(text[:min(len(text), 1000)]))
	switch {
	case len(start) == 0 && len(text) <= 1000:
		return refuse("empty", "the file has no rows, not even a header")
	case bytes.HasPrefix(start, []byte("<!doctype html")), bytes.HasPrefix(start, []byte("<html")):
		return refuse("html", "the file is a web page, not a table: perhaps a login or an error page was saved")
	case bytes.HasPrefix(start, []byte("<?xml")):
		return refuse("xml", "the file is XML, not a table")
	}
	return nil
}
