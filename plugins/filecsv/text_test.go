package filecsv

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
)

// letters are characters that an encoding can write; "" is for all forms of Unicode.
var letters = map[string]string{
	"":             "aé,€\n\"ž",
	"windows-1252": "aé,€\n\"ž", "shift_jis": "aテ,表\n\"ｱ", "koi8-r": "aЖ,я\n\"Ё", "iso-8859-15": "aé,€\n\"Ž",
}

func encodingNamed(t rapid.TB, name string) encodingOf {
	e, err := newEncoding(name)
	must.OK(t, err)
	return e
}

// TestEncodingNames: encodings are found by the names that people use, and unknown names are refused.
func TestEncodingNames(t *testing.T) {
	for name, want := range map[string]string{
		"UTF8": "utf-8", "latin1": "iso-8859-1", "ISO-8859-1": "iso-8859-1", "cp1252": "windows-1252",
		"Windows-1250": "windows-1250",
		"sjis":         "shift_jis", "Shift_JIS": "shift_jis", "KOI8-R": "koi8-r", "cp866": "ibm866", "gb18030": "gb18030",
		"big5": "big5", "euc-kr": "euc-kr",
	} {
		if e := encodingNamed(t, name); e.name != want {
			t.Errorf("%s is %s, want %s", name, e.name, want)
		}
	}
	if _, err := newEncoding("utf-9"); codeOf(err) != "bad_check" ||
		!strings.Contains(err.Error(), `"utf-9" is not known`) {
		t.Errorf("utf-9: %v", err)
	}
}

// TestMarks: the byte order mark names the encoding. Two marks are allowed.
func TestMarks(t *testing.T) {
	const text = "id,näme\n1,a\n"
	encode := func(order utf32.Endianness) string {
		s, err := utf32.UTF32(order, utf32.IgnoreBOM).NewEncoder().String(text)
		must.OK(t, err)
		return s
	}
	for name, c := range map[string]struct{ file, encoding string }{
		"utf-8":             {"\ufeff" + text, "utf-8"},
		"utf-8, twice":      {"\ufeff\ufeff" + text, "utf-8"},
		"utf-32, little":    {"\xff\xfe\x00\x00" + encode(utf32.LittleEndian), "utf-32le"},
		"utf-32, big":       {"\x00\x00\xfe\xff" + encode(utf32.BigEndian), "utf-32be"},
		"utf-16, two marks": {"\xff\xfe\xff\xfei\x00d\x00,\x00n\x00\xe4\x00m\x00e\x00\n\x001\x00,\x00a\x00", "utf-16le"},
	} {
		in := plain()
		in.Required = []string{"id", "näme"}
		out, err := scan(t.Context(), strings.NewReader(c.file), in, plainOptions())
		if err != nil || out.Encoding != c.encoding || out.Rows != 1 {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
}

// TestJoined: where files were joined, the byte order mark of the second one is no part of its first value.
func TestJoined(t *testing.T) {
	for header, bad := range map[string]int64{"yes": 1, "no": 0} { // the header of the second file
		in := plain()
		in.Header, in.Columns, in.Types = header, nil, map[string]string{"1": "int"}
		file := "1,b\n2,x\n\ufeff1,b\n3,y\n"
		if header == "no" {
			in.Columns = []string{"1", "b"}
		}
		in.MaxBadRows = 1
		out, err := scan(t.Context(), strings.NewReader(file), in, plainOptions())
		if err != nil || out.BadRows != bad {
			t.Errorf("header=%s: %+v, %v", header, out, err)
		}
	}
}

// TestUndefined: bytes that the encoding does not define are refused with their line, and not replaced.
func TestUndefined(t *testing.T) {
	for encoding, c := range map[string]struct{ text, word, code string }{
		"windows-1252": {"a,b\n1,\x81\n", "line 2: a byte that is not a character in windows-1252", "bad_encoding"},
		"iso-8859-3":   {"a,b\n1,x\n2,\xa5\n", "line 3: a byte that is not a character in iso-8859-3", "bad_encoding"},
		"shift_jis":    {"a,b\n1,\x83\x20\n", "line 2: a byte that is not a character in shift_jis", "bad_encoding"},
		"koi8-r":       {"a,b\n1,\xc1\x81\n", "", ""},
		"latin1":       {"a,b\n1,\xe9\x85\n", "", ""},
		"iso-8859-1":   {"a,b\n1,\x80\n", "line 2: a byte that is not a character in iso-8859-1", "bad_encoding"},
	} {
		in := plain()
		in.Encoding = encoding
		_, err := scan(t.Context(), strings.NewReader(c.text), in, plainOptions())
		if codeOf(err) != c.code || err != nil && err.Error() != c.word {
			t.Errorf("%s: %v", encoding, err)
		}
	}
}

// TestDecode encodes text with x/text and must read the same text.
func TestDecode(t *testing.T) {
	for name, e := range map[string]encoding.Encoding{
		encUTF16LE:     unicode.UTF16(unicode.LittleEndian, unicode.UseBOM),
		encUTF16BE:     unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
		encUTF8:        unicode.UTF8BOM,
		"windows-1252": charmap.Windows1252,
		"shift_jis":    japanese.ShiftJIS,
		"koi8-r":       charmap.KOI8R,
		"iso-8859-15":  charmap.ISO8859_15,
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				runes, declared := rapid.RuneFrom([]rune(letters[""])), name
				if letters[name] != "" {
					runes = rapid.RuneFrom([]rune(letters[name]))
				} else {
					runes = rapid.OneOf(runes, rapid.RuneFrom([]rune{'中', '😀', 0xfffd, 0xffff, 0x10ffff}))
					declared = rapid.SampledFrom([]string{name, encAuto}).Draw(t, "declared")
				}
				text := rapid.StringOfN(runes, 0, 200, -1).Draw(t, "text")
				raw, err := e.NewEncoder().String(text)
				must.OK(t, err)
				src, _, found, err := decode(bufio.NewReader(iotest.HalfReader(strings.NewReader(raw))), encodingNamed(t, declared))
				if err != nil || found.name != name {
					t.Fatalf("found %s, %v", found.name, err)
				}
				if got, err := io.ReadAll(src); err != nil || string(got) != text {
					t.Fatalf("got %q, %v; want %q", got, err, text)
				}
			})
		})
	}
}

// TestFirstBad compares with a check of one character after the other, for a whole text and for one in two parts.
func TestFirstBad(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "é", "€", "😀", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80",
		"\xff", "\x00", "\xc0\xaf", "\xef\xbf\xbd"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), "")
		want := -1
		for i := 0; i < len(text) && want < 0; {
			c, size := utf8.DecodeRuneInString(text[i:])
			if c == 0 || c == utf8.RuneError && size == 1 {
				want = i
			}
			i += size
		}
		if got, _ := firstBad([]byte(text), true); got != want {
			t.Fatalf("%q: got %d, want %d", text, got, want)
		}
		cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
		bad, looked := firstBad([]byte(text[:cut]), false)
		if bad < 0 {
			if bad, _ = firstBad([]byte(text[looked:]), true); bad >= 0 {
				bad += looked
			}
		}
		if bad != want || looked < cut-utf8.UTFMax+1 && want < 0 {
			t.Fatalf("%q cut at %d: got %d after %d, want %d", text, cut, bad, looked, want)
		}
	})
}

// TestBadFarAway: the position of a bad byte is right also after many blocks, and the rows before it are counted.
func TestBadFarAway(t *testing.T) {
	const hint = "; name its encoding: --set encoding=…\nwindows-1252, iso-8859-2, shift_jis, gb18030, koi8-r and others"
	for name, c := range map[string]struct{ before, bad, after, want string }{
		"windows-1252": {"", "M\xe1laga", "x", "not UTF-8 at byte 300,006" + hint},
		"marked":       {"\xef\xbb\xbf", "M\xe1", "é", "not UTF-8 at byte 300,009" + hint},
		"binary":       {"", "M\xe1\x00", "", "not a text file: NUL at byte 300,007"},
		"the last":     {"", "\xc3", "", "not UTF-8 at byte 300,005" + hint},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.before + "a,b\n" + strings.Repeat("1,2\n", 75_000) + "3"[:1] + c.bad + c.after
			if c.after != "" {
				text += "\n"
			}
			out, err := scan(t.Context(), bytes.NewReader([]byte(text)), plain(), plainOptions())
			if err == nil || err.Error() != c.want || out.Rows != 75_000 {
				t.Errorf("got %v after %d rows, want %s", err, out.Rows, c.want)
			}
		})
	}
}
