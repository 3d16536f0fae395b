package web

import (
	"bytes"
	"cmp"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding/charmap"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

var (
	declared = lazyregexp.New(`^\s*<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)
	bom      = []byte("\ufeff")
	language = lazyregexp.New(`(?i)(?:<language>\s*|\bxml:lang\s*=\s*["']|"language"\s*:\s*")([a-z]{2})(-[a-z]{2})?\b`)
)

// usual are the character sets that the HTML standard suggests for documents of a language that declare none.
var usual = map[string]string{
	"ar": "windows-1256", "ba": "windows-1251", "be": "windows-1251", "bg": "windows-1251", "cs": "windows-1250",
	"el": "iso-8859-7", "et": "windows-1257", "fa": "windows-1256", "he": "windows-1255", "hr": "windows-1250",
	"hu": "iso-8859-2", "ja": "shift_jis", "kk": "windows-1251", "ko": "euc-kr", "ku": "windows-1254",
	"ky": "windows-1251", "lt": "windows-1257", "lv": "windows-1257", "mk": "windows-1251", "pl": "iso-8859-2",
	"ru": "windows-1251", "sk": "windows-1250", "sl": "iso-8859-2", "sr": "windows-1251", "tg": "windows-1251",
	"th": "windows-874", "tr": "windows-1254", "tt": "windows-1251", "uk": "windows-1251", "vi": "windows-1258",
	"zh": "gb18030", "zh-tw": "big5", "zh-hk": "big5",
}

// guess decodes a document that declares no character set and is not UTF-8. It tries the usual one of the document's
// language, and takes windows-1252, as most browsers do, if the document names no language or this does not fit.
func guess(body []byte) (text []byte, note string) {
	if m := language().FindSubmatch(body[:min(len(body), 16<<10)]); m != nil {
		short := strings.ToLower(string(m[1]))
		name := cmp.Or(usual[short+strings.ToLower(string(m[2]))], usual[short])
		if encoding, _ := charset.Lookup(name); encoding != nil {
			text, err := encoding.NewDecoder().Bytes(body)
			if err == nil && !bytes.ContainsRune(text, utf8.RuneError) {
				return text, fmt.Sprintf("no character set is declared; read as %s, which is usual for its language: letters "+
					"may be wrong", name)
			}
		}
	}
	text, _ = charmap.Windows1252.NewDecoder().Bytes(body) // it can decode every byte
	return text, "no character set is declared; read as windows-1252: letters may be wrong"
}

// Text decodes an XML or JSON document. Its byte order mark gives the encoding, else the document's declaration, else
// the server's. If there is none of these and the document is not UTF-8, the encoding is guessed, and the note
// reports it.
func Text(body []byte, contentType string) (text []byte, note string, err error) {
	label, inBody := "", false
	switch {
	case bytes.HasPrefix(body, bom):
		body, label = body[len(bom):], "utf-8"
	case bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.HasPrefix(body, []byte("<\x00")):
		label = "utf-16le"
	case bytes.HasPrefix(body, []byte("\xfe\xff")), bytes.HasPrefix(body, []byte("\x00<")):
		label = "utf-16be"
	default:
		if m := declared().FindSubmatch(body[:min(len(body), 1<<10)]); m != nil {
			label, inBody = string(m[1]), true
		} else if _, params, err := mime.ParseMediaType(contentType); err == nil {
			label = params["charset"]
		}
	}
	if label == "" && !utf8.Valid(body) {
		text, note = guess(body)
		return text, note, nil
	}
	encoding, name := charset.Lookup(label)
	if inBody && strings.HasPrefix(name, "utf-16") { // a declaration in UTF-16 would not have been found
		if !utf8.Valid(body) {
			text, note = guess(body)
			return text, note, nil
		}
		return body, fmt.Sprintf("it declares %s and is not in it; read as UTF-8", label), nil
	}
	switch {
	case label == "" || name == "utf-8":
		if !utf8.Valid(body) {
			note = "not all of it is UTF-8, as it declares"
		}
		return bytes.ToValidUTF8(body, []byte("\ufffd")), note, nil
	case encoding == nil && utf8.Valid(body):
		return body, fmt.Sprintf("its character set %q is unknown; read as UTF-8", label), nil
	case encoding == nil:
		return nil, "", fmt.Errorf("its character set is %q, which is not known here", label)
	}
	text, err = encoding.NewDecoder().Bytes(body)
	return bytes.TrimPrefix(text, bom), "", err
}
