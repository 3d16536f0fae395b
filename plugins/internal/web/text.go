package web

import (
	"bytes"
	"fmt"
	"mime"
	"regexp"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
)

var (
	declared = regexp.MustCompile(`^\s*<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']`)
	bom      = []byte("\ufeff")
)

// Text gives the text of an XML or JSON document: a byte order mark decides, then what the document says of itself,
// then what the server says. What says nothing and is not UTF-8 is read as browsers do.
func Text(body []byte, contentType string) (text []byte, note string, err error) {
	label := ""
	switch {
	case bytes.HasPrefix(body, bom):
		body, label = body[len(bom):], "utf-8"
	case bytes.HasPrefix(body, []byte("\xff\xfe")), bytes.HasPrefix(body, []byte("<\x00")):
		label = "utf-16le"
	case bytes.HasPrefix(body, []byte("\xfe\xff")), bytes.HasPrefix(body, []byte("\x00<")):
		label = "utf-16be"
	default:
		if m := declared.FindSubmatch(body[:min(len(body), 1<<10)]); m != nil {
			label = string(m[1])
		} else if _, params, err := mime.ParseMediaType(contentType); err == nil {
			label = params["charset"]
		}
	}
	if label == "" && !utf8.Valid(body) {
		label = "windows-1252"
	}
	encoding, name := charset.Lookup(label)
	switch {
	case label == "" || name == "utf-8":
		if !utf8.Valid(body) {
			note = "not all of it is UTF-8, as it says it is"
		}
		return bytes.ToValidUTF8(body, []byte("\ufffd")), note, nil
	case encoding == nil && utf8.Valid(body):
		return body, fmt.Sprintf("it says that its character set is %q, which nobody knows; read as UTF-8", label), nil
	case encoding == nil:
		return nil, "", fmt.Errorf("its character set is %q, which is not known here", label)
	}
	text, err = encoding.NewDecoder().Bytes(body)
	return bytes.TrimPrefix(text, bom), "", err
}
