package mail

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	texttemplate "text/template"

	gomail "github.com/wneessen/go-mail"
)

const (
	maxTemplate = 1 << 20  // bytes of a file
	maxPart     = 10 << 20 // bytes of what a template makes
	maxSubject  = 900      // bytes; a line of a header has at most 998
)

// message is a mail, ready to be sent.
type message struct {
	from, to address
	id       string // Message-ID without its angle brackets
	content  []byte // header and body
}

// parts are the words of a mail.
type parts struct{ subject, text, html string }

// compose makes the mail of an item. The error is a *failure.
func compose(ctx context.Context, cfg *Config, in In, key string) (*message, error) {
	to, err := parseAddress(in.To)
	if err != nil {
		return nil, permanent("bad_address", fmt.Errorf("to: %w", err))
	}
	p, err := words(ctx, cfg.Templates, in)
	if err != nil {
		return nil, err
	}
	m := &message{from: cfg.from, to: to, id: messageID(key, in, cfg.from)}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&m.from.Address)
	msg.ToMailAddress(&m.to.Address)
	msg.Subject(p.subject)
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
	var content bytes.Buffer
	if _, err := msg.WriteTo(&content); err != nil {
		return nil, permanent("bad_mail", err)
	}
	m.content = content.Bytes()
	return m, nil
}

// messageID is the same for every attempt at one mail, and another for any other mail: ledgers
// that were begun anew use keys again.
func messageID(key string, in In, from address) string {
	raw, err := json.Marshal(in)
	if err != nil {
		raw = nil // an In always is JSON: it came from there
	}
	sum := sha256.Sum256(append([]byte(key+"\x00"), raw...))
	return fmt.Sprintf("%s@%s", hex.EncodeToString(sum[:16]), from.domain())
}

// words gives subject and text of a mail, from the item or from its template.
func words(ctx context.Context, folder string, in In) (parts, error) {
	p := parts{in.Subject, in.Text, in.HTML}
	if in.Template != "" {
		if in.Text != "" || in.HTML != "" {
			return p, permanent("bad_mail", errors.New("template: there is text or html as well"))
		}
		var err error
		if p, err = fill(ctx, folder, in); err != nil {
			return p, err
		}
	}
	p.subject = oneSpace(p.subject)
	switch {
	case p.text == "" && p.html == "":
		return p, permanent("bad_mail", errors.New("nothing to send: no text, html or template"))
	case p.subject == "":
		return p, permanent("bad_mail", errors.New("subject: there is none"))
	case len(p.subject) > maxSubject:
		return p, permanent("bad_mail", fmt.Errorf("subject: has %d bytes, at most %d", len(p.subject), maxSubject))
	}
	if err := oneLine(p.subject); err != nil {
		return p, permanent("bad_mail", fmt.Errorf("subject: %w", err))
	}
	return p, nil
}

// fill makes the words of a mail from the files NAME.subject, NAME.txt and NAME.html.
func fill(ctx context.Context, folder string, in In) (parts, error) {
	if folder == "" {
		return parts{}, transient("template", errors.New("template: this machine has no folder of templates: --with templates=/PATH"))
	}
	p := parts{subject: in.Subject}
	found := false
	for _, part := range []struct {
		ending string
		to     *string
		parse  func(name, text string) (executer, error)
	}{{"subject", &p.subject, parseText}, {"txt", &p.text, parseText}, {"html", &p.html, parseHTML}} {
		if part.ending == "subject" && in.Subject != "" {
			continue
		}
		name := in.Template + "." + part.ending
		text, err := readTemplate(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return p, transient("template", fmt.Errorf("template %s: %w", name, err))
		}
		t, err := part.parse(name, text)
		if err != nil {
			return p, transient("template", err)
		}
		found = found || part.ending != "subject"
		out := limited{ctx: ctx, left: maxPart}
		if err := t.Execute(&out, map[string]any(in.Data)); err != nil {
			if ctx.Err() != nil {
				return p, transient("template", context.Cause(ctx))
			}
			return p, permanent("template", err)
		}
		*part.to = out.String()
	}
	if !found {
		return p, transient("template", fmt.Errorf("template: neither %s.txt nor %[1]s.html is in %s", in.Template, folder))
	}
	return p, nil
}

type executer interface {
	Execute(w io.Writer, data any) error
}

// A field that the data do not have is an error: a mail to "Dear <no value>" helps nobody.
const strict = "missingkey=error"

func parseText(name, text string) (executer, error) {
	return texttemplate.New(name).Option(strict).Parse(text)
}

func parseHTML(name, text string) (executer, error) {
	return htmltemplate.New(name).Option(strict).Parse(text)
}

func readTemplate(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTemplate+1))
	if len(text) > maxTemplate {
		return "", fmt.Errorf("has more than %d bytes", maxTemplate)
	}
	return string(text), err
}

// limited takes what a template writes, up to a size and as long as the item may go on.
type limited struct {
	bytes.Buffer
	ctx  context.Context
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, fmt.Errorf("makes more than %d bytes", maxPart)
	}
	if err := l.ctx.Err(); err != nil {
		return 0, context.Cause(l.ctx)
	}
	return l.Buffer.Write(p)
}

// checkFolder refuses a folder of templates that is none.
func checkFolder(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("templates: %q is not an absolute path", path)
	case err != nil:
		return fmt.Errorf("templates: %w", err)
	case !info.IsDir():
		return fmt.Errorf("templates: %s is not a folder", path)
	}
	return nil
}
