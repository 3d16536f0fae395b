package mail

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	gomail "github.com/wneessen/go-mail"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

const maxSubject = 900 // bytes; a line of a header has at most 998

// message is a mail that is ready to be sent.
type message struct {
	from    address
	to      []string // recipients without names and without duplicates, including those of Cc and Bcc
	id      string   // Message-ID without its angle brackets
	content []byte   // header and body
}

// parts are the texts of a mail.
type parts struct{ subject, text, html string }

// compose makes the mail of an item. The error is a *failure.Error.
func compose(ctx context.Context, cfg *Config, in In, key string) (*message, error) {
	m := &message{from: cfg.from, id: messageID(key, in, cfg.from)}
	envelope, err := m.address(in)
	if err != nil {
		return nil, failure.Permanent("bad_address", err)
	}
	list, err := unsubscribe(in.Unsubscribe, in.OneClick)
	if err != nil {
		return nil, failure.Permanent("bad_mail", err)
	}
	p, err := words(ctx, cfg.Templates, in)
	if err != nil {
		return nil, err
	}
	files, err := attached(cfg, in.Attach)
	if err != nil {
		return nil, err
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.SetMessageIDWithValue(m.id)
	msg.SetDate()
	switch {
	case p.html == "":
		msg.SetBodyString(gomail.TypeTextPlain, p.text)
	case p.text == "":
		msg.SetBodyString(gomail.TypeTextHTML, p.html)
	default:
		msg.SetBodyString(gomail.TypeTextPlain, p.text)
		msg.AddAlternativeString(gomail.TypeTextHTML, p.html)
	}
	for _, f := range files {
		msg.AttachReadSeeker(f.name, bytes.NewReader(f.content))
	}
	var content bytes.Buffer
	content.WriteString(envelope + header("Subject", inHeader(p.subject)) + list)
	if _, err := msg.WriteTo(&content); err != nil {
		return nil, failure.Permanent("bad_mail", err)
	}
	m.content = content.Bytes()
	return m, nil
}

// address reads the sender and the recipients and returns their header lines. Bcc gets no line.
func (m *message) address(in In) (lines string, err error) {
	lines = header("From", m.from.inHeader())
	for _, field := range []struct {
		name, header string
		list         []string
		receives     bool
	}{
		{"to", "To", []string{in.To}, true},
		{"cc", "Cc", in.Cc, true},
		{"bcc", "", in.Bcc, true},
		{"reply_to", "Reply-To", in.ReplyTo, false},
	} {
		parsed := make([]address, len(field.list))
		for i, text := range field.list {
			if parsed[i], err = parseAddress(text); err != nil {
				return "", fmt.Errorf("%s: %w", field.name, err)
			}
			if bare := parsed[i].Address.Address; field.receives && !slices.Contains(m.to, bare) {
				m.to = append(m.to, bare)
			}
		}
		if field.header != "" && len(parsed) > 0 {
			lines += header(field.header, inHeaders(parsed))
		}
	}
	return lines, nil
}

// messageID is the same for every attempt at one mail and differs between mails. It depends on the payload, too,
// because a new ledger uses the same keys again. It does not depend on Bcc: otherwise a recipient could guess Bcc and
// verify the guess.
func messageID(key string, in In, from address) string {
	in.Bcc = nil
	raw, err := json.Marshal(in)
	if err != nil {
		raw = nil // cannot happen: In was decoded from JSON
	}
	sum := sha256.Sum256(append([]byte(key+"\x00"), raw...))
	return fmt.Sprintf("%s@%s", hex.EncodeToString(sum[:16]), from.domain())
}

// words returns the subject and the text of a mail, from the item or from its template.
func words(ctx context.Context, folder string, in In) (parts, error) {
	p := parts{in.Subject, in.Text, in.HTML}
	if in.Template != "" {
		if in.Text != "" || in.HTML != "" {
			return p, failure.Permanent("bad_mail", errors.New("template: there is text or html as well"))
		}
		var err error
		if p, err = fill(ctx, folder, in); err != nil {
			return p, err
		}
	}
	p.subject = oneSpace(p.subject)
	switch {
	case p.text == "" && p.html == "":
		return p, failure.Permanent("bad_mail", errors.New("nothing to send: no text, html or template"))
	case p.subject == "":
		return p, failure.Permanent("bad_mail", errors.New("subject: there is none"))
	case len(p.subject) > maxSubject:
		return p, failure.Permanent("bad_mail", fmt.Errorf("subject: has %d bytes, at most %d", len(p.subject), maxSubject))
	}
	if err := oneLine(p.subject); err != nil {
		return p, failure.Permanent("bad_mail", fmt.Errorf("subject: %w", err))
	}
	return p, nil
}
