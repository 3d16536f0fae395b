package filecsv

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/transform"
)

// The encodings, as they are named in payload and output.
const (
	encAuto    = "auto"
	encUTF8    = "utf-8"
	encUTF16LE = "utf-16le"
	encUTF16BE = "utf-16be"
	enc1252    = "windows-1252"
)

var marks = []struct{ mark, encoding string }{
	{"\xef\xbb\xbf", encUTF8}, {"\xff\xfe", encUTF16LE}, {"\xfe\xff", encUTF16BE},
}

// decode returns src as UTF-8 without byte order mark, the length of the mark, and the encoding
// that src has. With encAuto that is what the mark says and otherwise UTF-8. Nothing is
// guessed or replaced. That UTF-8 is valid is left to the reader of text, see firstBad.
func decode(src *bufio.Reader, declared string) (text io.Reader, mark int, encoding string, err error) {
	start, err := src.Peek(3)
	if err != nil && err != io.EOF {
		return nil, 0, "", err
	}
	encoding = declared
	for _, m := range marks {
		if !bytes.HasPrefix(start, []byte(m.mark)) {
			continue
		}
		if declared != encAuto && declared != m.encoding {
			return nil, 0, "", refuse("bad_encoding", "the file has the byte order mark of %s, not of %s", m.encoding, declared)
		}
		encoding = m.encoding
		if mark, err = src.Discard(len(m.mark)); err != nil {
			return nil, 0, "", err
		}
		break
	}
	var decoder transform.Transformer
	switch encoding {
	case enc1252:
		decoder = charmap.Windows1252.NewDecoder()
	case encUTF16LE:
		decoder = &utf16Decoder{order: binary.LittleEndian, done: int64(mark)}
	case encUTF16BE:
		decoder = &utf16Decoder{order: binary.BigEndian, done: int64(mark)}
	default:
		return src, mark, encUTF8, nil
	}
	return transform.NewReader(src, decoder), mark, encoding, nil
}

// utf16Decoder is a transform.Transformer that refuses lone surrogates, which that of
// x/text/encoding/unicode replaces.
type utf16Decoder struct {
	transform.NopResetter
	order binary.ByteOrder
	done  int64
}

func (d *utf16Decoder) Transform(dst, src []byte, atEOF bool) (nDst, nSrc int, err error) {
	defer func() { d.done += int64(nSrc) }()
	for nSrc < len(src) {
		rest := src[nSrc:]
		if len(rest) < 4 && !atEOF {
			return nDst, nSrc, transform.ErrShortSrc
		}
		c, size := rune(utf8.RuneError), 2
		if len(rest) >= 2 {
			c = rune(d.order.Uint16(rest))
		}
		if utf16.IsSurrogate(c) && len(rest) >= 4 {
			c, size = utf16.DecodeRune(c, rune(d.order.Uint16(rest[2:]))), 4
		}
		if len(rest) < 2 || utf16.IsSurrogate(c) || size == 4 && c == utf8.RuneError {
			return nDst, nSrc, refuse("bad_encoding", "not UTF-16 at byte %s", humanize.Comma(d.done+int64(nSrc)))
		}
		if nDst+utf8.UTFMax > len(dst) {
			return nDst, nSrc, transform.ErrShortDst
		}
		nDst += utf8.EncodeRune(dst[nDst:], c)
		nSrc += size
	}
	return nDst, nSrc, nil
}

// firstBad returns the offset of the first byte of b that is NUL or not UTF-8; else -1, and how
// many bytes were looked at: not a character that is cut off, unless b is the end of the text.
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

// notText explains what firstBad found at offset bad of block, which is what was read after the
// first passed bytes. A NUL anywhere in it says more than the first byte that is not UTF-8.
func notText(block []byte, bad int, passed int64) error {
	if nul := bytes.IndexByte(block, 0); nul >= 0 {
		where := humanize.Comma(passed + int64(nul))
		if enc := looksLikeUTF16(block); enc != "" {
			return refuse("bad_encoding", "NUL at byte %s, looks like %s without a byte order mark; if it is: --set encoding=%s", where, enc, enc)
		}
		return refuse("not_csv", "NUL at byte %s: not a text file", where)
	}
	where := humanize.Comma(passed + int64(bad))
	if looksLike1252(block) {
		return refuse("bad_encoding", "not UTF-8 at byte %s, looks like windows-1252; if it is: --set encoding=windows-1252", where)
	}
	return refuse("bad_encoding", "not UTF-8 at byte %s", where)
}

// looksLike1252 is true for text in which no character above ASCII is UTF-8 or undefined in
// windows-1252.
func looksLike1252(b []byte) bool {
	for len(b) > 0 {
		c, size := utf8.DecodeRune(b)
		if size > 1 || c < ' ' && c != '\t' && c != '\r' && c != '\n' || bytes.IndexByte([]byte("\x81\x8d\x8f\x90\x9d"), b[0]) >= 0 {
			return false
		}
		b = b[size:]
	}
	return true
}

// looksLikeUTF16 is true for mostly ASCII text: most of every other byte is NUL.
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
