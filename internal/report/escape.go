package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// acts reports whether a terminal, or a program that lays out lines, would act on a character instead of
// showing it: control characters (also DEL and C1), marks of direction and other invisible ones.
func acts(r rune) bool {
	return r > unicode.MaxASCII && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r == 0x7f
}

// escapeJSON writes such characters of valid JSON as \uXXXX: the value stays the same. Bytes that are no UTF-8 become
// U+FFFD, as readers of JSON take them.
func escapeJSON(text []byte) []byte {
	if utf8.Valid(text) && !bytes.ContainsFunc(text, acts) {
		return text
	}
	var b bytes.Buffer
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r > 0xffff && acts(r):
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		case acts(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.Bytes()
}

// Marshal is JSON with a line's end that a terminal can show. & < > stand as they are: URLs stay readable.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return escapeJSON(b.Bytes()), err
}

// mostNesting is how deeply JSON may be nested to be indented: the spaces grow with the square of the depth.
const mostNesting = 50

// Indented is JSON for people to read. It returns JSON that is nested too deeply, and what is no JSON, as it is.
func Indented(text []byte) []byte {
	var b bytes.Buffer
	if nesting(text) > mostNesting || json.Indent(&b, text, "", "  ") != nil { // MarshalIndent would escape & < >
		return text
	}
	return b.Bytes()
}

// nesting is how many arrays and objects of JSON are open at most.
func nesting(text []byte) (most int) {
	open, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '[' || c == '{':
			open++
			most = max(most, open)
		case c == ']' || c == '}':
			open--
		}
	}
	return most
}

// JSONLines is a writer to which lines of JSON are written, each whole, that a terminal can show then.
func JSONLines(out io.Writer) io.Writer { return jsonLines{out} }

type jsonLines struct{ out io.Writer }

func (w jsonLines) Write(line []byte) (int, error) {
	if _, err := w.out.Write(escapeJSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// plainNumber is what a spreadsheet takes for a number, and for nothing else.
var plainNumber = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?%?$`)
})

// formulaSigns begin what a spreadsheet calculates; the wide ones do where Chinese or Japanese is written.
const formulaSigns = "=+-@＝＋－＠"

// cellWithCommas is a cell of a file with semicolons. An Excel that is set to commas splits the cell at its commas, so
// each part that would be a formula gets an apostrophe.
func cellWithCommas(text string) string {
	parts := strings.Split(text, ",")
	for i, part := range parts[1:] {
		inner := strings.TrimLeftFunc(part, func(r rune) bool { return r == '"' || unicode.IsSpace(r) })
		if cell(inner) != Safe(inner) {
			parts[i+1] = "'" + part
		}
	}
	return strings.Join(parts, ",")
}

// cell is text for a cell that people open in a spreadsheet: safe for a terminal, and what would be a
// formula has an apostrophe before it.
func cell(text string) string {
	begins := strings.TrimLeftFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || acts(r)
	})
	formula := begins != "" && strings.ContainsRune(formulaSigns, []rune(begins)[0]) || strings.HasPrefix(text, "\t") ||
		strings.HasPrefix(text, "\r")
	shown := Safe(text)
	if formula && !plainNumber().MatchString(text) {
		return "'" + shown
	}
	return shown
}
