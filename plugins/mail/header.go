package mail

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxLine is the longest allowed line of a header with encoded words (RFC 2047, section 2).
const maxLine = 76

// maxWord is the longest word that fits on the first line of every header in this file.
const maxWord = 58

// header returns a header line, folded at its blanks. The first word is on the first line: many programs read an empty
// first line as a value that begins with a blank.
func header(name, value string) string {
	var b strings.Builder
	b.WriteString(name + ":")
	length := len(name) + 1
	for i, word := range strings.Split(value, " ") {
		if i > 0 && length+1+len(word) > maxLine {
			b.WriteString("\r\n")
			length = 0
		}
		b.WriteString(" " + word)
		length += 1 + len(word)
	}
	return b.String() + "\r\n"
}

// inHeader returns a text in the form for a header: plain ASCII without change, other text as encoded words (RFC
// 2047).
func inHeader(text string) string {
	plain := !strings.Contains(text, "=?") // a reader would decode text that looks like an encoded word
	for word := range strings.FieldsSeq(text) {
		plain = plain && len(word) <= maxWord
	}
	if plain && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return text
	}
	const begin, end = "=?utf-8?b?", "?="
	most := base64.StdEncoding.DecodedLen(maxWord - len(begin) - len(end))
	var words []string
	for text != "" {
		n := 0
		for n < len(text) {
			_, size := utf8.DecodeRuneInString(text[n:])
			if n+size > most {
				break
			}
			n += size
		}
		words = append(words, begin+base64.StdEncoding.EncodeToString([]byte(text[:n]))+end)
		text = text[n:]
	}
	return strings.Join(words, " ")
}

// inHeader returns an address in the form for a header.
func (a address) inHeader() string {
	bare := mail.Address{Address: a.Address.Address}
	if a.Name == "" {
		return bare.String()
	}
	if name := inHeader(a.Name); name != a.Name {
		return name + " " + bare.String()
	}
	return a.String()
}

// inHeaders returns a list of addresses in the form for a header.
func inHeaders(list []address) string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.inHeader()
	}
	return strings.Join(texts, ", ")
}

// unsubscribe returns the header lines for which mail programs show an "unsubscribe" button (RFC 2369). With oneClick,
// mail programs may send the request themselves (RFC 8058).
func unsubscribe(where string, oneClick bool) (lines string, err error) {
	if where == "" {
		if oneClick {
			return "", errors.New("one_click: there is no unsubscribe")
		}
		return "", nil
	}
	u, err := url.Parse(where)
	switch {
	case err != nil || strings.ContainsFunc(where, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '<' || r == '>'
	}):
		return "", errors.New("unsubscribe: is no URL")
	case u.Scheme == "mailto":
		if _, err := parseAddress(u.Opaque); err != nil {
			return "", fmt.Errorf("unsubscribe: %w", err)
		}
	case u.Scheme != "https" || u.Host == "":
		return "", errors.New("unsubscribe: is neither https://… nor mailto:…")
	}
	lines = header("List-Unsubscribe", "<"+where+">")
	if oneClick && u.Scheme != "https" {
		return "", errors.New("one_click: unsubscribe is not an https://… URL, as RFC 8058 asks for")
	}
	if oneClick {
		lines += header("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")
	}
	return lines, nil
}
