package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// invisible reports whether a terminal would act on a character of JSON instead of showing it: DEL, C1 control
// characters, marks of direction and other invisible characters. JSON has no other control characters.
func invisible(r rune) bool {
	return r > unicode.MaxASCII && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r == 0x7f
}

// escapeJSON writes invisible characters as \uXXXX: the value of the JSON stays the same. Bytes that are not UTF-8
// become U+FFFD, as in decoders of JSON.
func escapeJSON(text []byte) []byte {
	if !slices.ContainsFunc(text, func(c byte) bool { return c >= 0x7f }) { // most JSON, and this is faster
		return text
	}
	if utf8.Valid(text) && !bytes.ContainsFunc(text, invisible) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		if !invisible(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}

// Marshal returns JSON that is safe for a terminal, with a line end. & < > are not escaped, so URLs stay readable.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return escapeJSON(b.Bytes()), err
}

// maxNesting is how deeply JSON may be nested to be indented: the spaces grow with the square of the depth.
const maxNesting = 50

// Indented returns JSON with indents. JSON that is nested too deeply, and text that is not JSON, is returned as it is.
func Indented(text []byte) []byte {
	var b bytes.Buffer
	if nesting(text) > maxNesting || json.Indent(&b, text, "", "  ") != nil { // MarshalIndent would escape & < >
		return text
	}
	return b.Bytes()
}

// nesting returns the depth of JSON.
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

// JSONLines returns a writer for lines of JSON that makes them safe for a terminal. Each write must be a whole line.
func JSONLines(out io.Writer) io.Writer { return jsonLines{out} }

type jsonLines struct{ out io.Writer }

func (w jsonLines) Write(line []byte) (int, error) {
	if _, err := w.out.Write(escapeJSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// plainNumber matches a text that every spreadsheet reads as a number.
var plainNumber = lazyregexp.New(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?%?$`)

// formulaSigns begin a formula in a spreadsheet; the wide ones do so in Chinese and Japanese versions.
const formulaSigns = "=+-@＝＋－＠"

// cellWithCommas returns a cell for a file with semicolons. An Excel that is set to commas splits the cell at its
// commas, so each part that would be a formula gets an apostrophe.
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

// cell returns a text for a cell of CSV: safe for a terminal, and with an apostrophe before a formula.
func cell(text string) string {
	begins := strings.TrimLeftFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || invisible(r)
	})
	formula := strings.IndexAny(begins, formulaSigns) == 0 || strings.HasPrefix(text, "\t") ||
		strings.HasPrefix(text, "\r")
	shown := Safe(text)
	if formula && !plainNumber().MatchString(text) {
		return "'" + shown
	}
	return shown
}
