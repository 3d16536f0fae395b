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
	"golang.org/x/text/encoding/unicode"
	"pgregory.net/rapid"
)

// TestDecode encodes text with x/text and reads the same text.
func TestDecode(t *testing.T) {
	for name, e := range map[string]encoding.Encoding{
		encUTF16LE: unicode.UTF16(unicode.LittleEndian, unicode.UseBOM),
		encUTF16BE: unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
		encUTF8:    unicode.UTF8BOM,
		enc1252:    charmap.Windows1252,
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				runes := rapid.RuneFrom([]rune("aé,€\n\"ž"))
				declared := name
				if name != enc1252 {
					runes = rapid.OneOf(runes, rapid.RuneFrom([]rune{'中', '😀', 0xfffd, 0xffff, 0x10ffff}))
					declared = rapid.SampledFrom([]string{name, encAuto}).Draw(t, "declared")
				}
				text := rapid.StringOfN(runes, 0, 200, -1).Draw(t, "text")
				raw, err := e.NewEncoder().String(text)
				if err != nil {
					t.Fatal(err)
				}
				src, _, found, err := decode(bufio.NewReader(iotest.HalfReader(strings.NewReader(raw))), declared)
				if err != nil || found != name {
					t.Fatalf("found %s, %v", found, err)
				}
				if got, err := io.ReadAll(src); err != nil || string(got) != text {
					t.Fatalf("got %q, %v; want %q", got, err, text)
				}
			})
		})
	}
}

// TestFirstBad compares with looking at one character after the other, in pieces.
func TestFirstBad(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "é", "€", "😀", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\xff", "\x00", "\xc0\xaf", "\xef\xbf\xbd"})
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

// TestBadFarAway: the place is right also behind many blocks, and rows before it count.
func TestBadFarAway(t *testing.T) {
	for name, c := range map[string]struct{ before, bad, after, want string }{
		"windows-1252": {"", "M\xe1laga", "x", "not UTF-8 at byte 300,006, looks like windows-1252; if it is: --set encoding=windows-1252"},
		"mixed":        {"", "M\xe1laga", "Málaga", "not UTF-8 at byte 300,006"},
		"marked":       {"\xef\xbb\xbf", "M\xe1", "é", "not UTF-8 at byte 300,009"},
		"binary":       {"", "M\xe1\x00", "", "NUL at byte 300,007: not a text file"},
		"the last":     {"", "\xc3", "", "not UTF-8 at byte 300,005, looks like windows-1252; if it is: --set encoding=windows-1252"},
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
