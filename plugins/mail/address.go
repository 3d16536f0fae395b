package mail

import (
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// address is an email address. Each of its parts is safe in an SMTP command and in a header.
type address struct{ mail.Address }

const maxAddress = 500 // bytes, including the name; a line of a header has at most 998

// parseAddress reads one address, with or without a name. It converts an international domain to its ASCII form. It
// refuses a character that could end a line or a command, even inside quotes.
func parseAddress(text string) (address, error) {
	if err := oneLine(text); err != nil {
		return address{}, err
	}
	if len(text) > maxAddress {
		return address{}, fmt.Errorf("has more than %d bytes", maxAddress)
	}
	parsed, err := mail.ParseAddress(text)
	if err != nil {
		return address{}, errors.New("not an address such as ann@example.com")
	}
	at := strings.LastIndexByte(parsed.Address, '@')
	local, domain := parsed.Address[:at], parsed.Address[at+1:]
	switch {
	case oneLine(parsed.Name) != nil || oneLine(local) != nil: // an encoded word can contain any character
		return address{}, errors.New("has control characters")
	case strings.ContainsFunc(local, func(r rune) bool { return r >= utf8.RuneSelf }):
		return address{}, errors.New("has letters other than ASCII before the @")
	// Such a character needs quotes, and RCPT gets the address without quotes.
	case strings.ContainsAny(local, " <>\"\\()[],:;@"):
		return address{}, errors.New("has blanks, quotes, brackets or one of , : ; @ before the @")
	case len(local) > 64:
		return address{}, errors.New("has more than 64 bytes before the @")
	case strings.HasPrefix(domain, "["):
		return address{}, errors.New("has no domain behind the @, but a network address")
	}
	domain, err = idna.Lookup.ToASCII(domain)
	if err != nil || len(domain) > 253 || domain == "" {
		return address{}, errors.New("has no domain name behind the @")
	}
	return address{mail.Address{Name: oneSpace(parsed.Name), Address: local + "@" + domain}}, nil
}

// domain is the part after the @.
func (a address) domain() string {
	return a.Address.Address[strings.LastIndexByte(a.Address.Address, '@')+1:]
}

// oneLine refuses characters that could begin another header or command, or hide text.
func oneLine(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("is not UTF-8")
	}
	if i := strings.IndexFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	}); i >= 0 {
		return fmt.Errorf("has a control character at byte %d", i+1)
	}
	return nil
}

// oneSpace replaces a run of blanks by one. Headers are folded at blanks, and a mail program takes a line of only
// blanks for the end of the header.
func oneSpace(text string) string { return strings.Join(strings.Fields(text), " ") }
