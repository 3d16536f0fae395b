package mail

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp"
	"github.com/ledgerd/ledgerd/sdk"
)

const doc = `Sends mails by SMTP: one item is one mail to one address, with copies if need be.

    ledgerd run mail ann@example.com --set subject=Hello --set text='Good morning' \
      --with server=smtp.example.com:587 --with from=news@example.com \
      --with user=news --with password=file:/run/secrets/smtp

A mail that the server refuses for good (` + "`smtp_550`" + `, a bad address) is dead; one that it refuses for now, or
because of the sender, the login or the name of this machine (` + "`smtp_530`" + `, see ` + "`hello`" + `), is tried
again. If it is not known whether the server has taken a mail, the mail is in doubt: it is sent
again only when a person decides so.
`

// Config has the settings of a machine. The package comment explains them.
type Config struct {
	smtp.Server
	From        string `json:"from" schema:"required,minLength=3,maxLength=500" doc:"the sender, as news@example.com or Example News <news@example.com>"`
	Templates   string `json:"templates" default:"" doc:"folder of templates, an absolute path"`
	Attachments string `json:"attachments" default:"" doc:"folder of files that may be attached, an absolute path"`
	MaxAttach   int64  `json:"max_attach" tune:"true" default:"10485760" schema:"min=0,max=104857600" doc:"bytes of all attachments of a mail"`
	Maildir     string `json:"maildir" default:"" doc:"folder that gets the mails instead of the server, an absolute path: for trying out"`

	from   address
	sender *smtp.Sender
}

// In is the payload of one mail.
type In struct {
	To       string `json:"to" input:"line" schema:"maxLength=500" doc:"whom to send it to, one address"`
	Subject  string `json:"subject" default:"" schema:"maxLength=900" doc:"one line; over the template's"`
	Text     string `json:"text" default:"" doc:"the text, as it stands"`
	HTML     string `json:"html" default:"" doc:"the text as HTML, as it stands"`
	Template string `json:"template" default:"" schema:"maxLength=64,pattern=^([A-Za-z0-9][A-Za-z0-9_.-]*)?$" doc:"name of a template, instead of text and html"`
	Data     Data   `json:"data" doc:"the values of the template's fields"`
	// omitempty keeps the Message-IDs of mails that do not use these newer fields.
	Cc          []string `json:"cc,omitempty" schema:"maxItems=50,maxLength=500" doc:"who gets a copy"`
	Bcc         []string `json:"bcc,omitempty" schema:"maxItems=50,maxLength=500" doc:"recipients of a hidden copy"`
	ReplyTo     []string `json:"reply_to,omitempty" schema:"maxItems=10,maxLength=500" doc:"where answers go, if not to the sender"`
	Unsubscribe string   `json:"unsubscribe,omitempty" schema:"maxLength=900" doc:"where to sign off (List-Unsubscribe): https://… or mailto:…"`
	OneClick    bool     `json:"one_click,omitempty" doc:"a POST to unsubscribe signs off without another question (RFC 8058)"`
	Attach      []string `json:"attach,omitempty" schema:"maxItems=20,minLength=1,maxLength=1000" doc:"files to attach, as paths below the folder of attachments"`
}

// Data are the values of a template's fields. Numbers keep their original spelling.
type Data map[string]any

// UnmarshalJSON decodes an object and keeps numbers as json.Number.
func (d *Data) UnmarshalJSON(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	fields := map[string]any{}
	err := dec.Decode(&fields)
	*d = fields
	return err
}

// Out is the result of one mail.
type Out struct {
	MessageID string `json:"message_id,omitempty" doc:"the mail's Message-ID, without angle brackets; the same for every attempt"`
	Bytes     int    `json:"bytes,omitempty" doc:"size of the mail"`
	Reply     string `json:"reply,omitempty" doc:"what the server answered to it, or the file of a maildir"`
}

// Validate refuses a config that cannot work, before the first item.
func (c *Config) Validate() (err error) {
	if c.from, err = parseAddress(c.From); err != nil {
		return fmt.Errorf("from: %w", err)
	}
	switch {
	case c.Maildir == "":
		err = c.Server.Validate()
	case c.Addr != "":
		err = errors.New("maildir: there is a server as well; a mail goes to one of the two")
	case !filepath.IsAbs(c.Maildir):
		err = fmt.Errorf("maildir: %q is not an absolute path", c.Maildir)
	}
	return cmp.Or(err, checkFolder("templates", c.Templates), checkFolder("attachments", c.Attachments))
}

// Open prepares the sender, or creates the folder. It does not connect.
func (c *Config) Open(context.Context) (err error) {
	if c.Maildir != "" {
		return maildir{c.Maildir}.make()
	}
	c.sender, err = smtp.New(c.Server)
	return err
}

// Check connects, logs in and disconnects.
func (c *Config) Check(ctx context.Context) error {
	if c.sender == nil {
		return nil
	}
	return c.sender.Check(ctx)
}

// Close ends idle connections.
func (c *Config) Close() error {
	if c.sender != nil {
		c.sender.Close()
	}
	return nil
}

// Plugin returns the mail plugin.
func Plugin() *sdk.Plugin {
	p := sdk.New("mail", "0.1.0", work)
	p.Doc = doc
	p.Concurrency = 8
	p.OnLost = sdk.OnLostDoubt
	p.MaxFailures = 10 // about two hours, see delay
	return p
}

func work(ctx context.Context, cfg *Config, it sdk.Item[In]) (Out, error) {
	m, err := compose(ctx, cfg, it.Payload, it.IdempotencyKey)
	if err != nil {
		return Out{}, report(ctx, err, it.Attempt)
	}
	out := Out{MessageID: m.id, Bytes: len(m.content)}
	if cfg.Maildir != "" {
		out.Reply, err = maildir{cfg.Maildir}.deliver(m)
	} else {
		out.Reply, err = cfg.sender.Send(ctx, m.from.Address.Address, m.to, m.content)
	}
	return out, report(ctx, err, it.Attempt)
}

// report converts a failure for the SDK. If the mail was not sent because the item was cancelled, report returns the
// cause of the cancellation. That the time of the item is over is an ordinary failure.
func report(ctx context.Context, err error, attempt int64) error {
	if f, ok := errors.AsType[*failure.Error](err); ok && f.Fate == failure.Again {
		switch cause := context.Cause(ctx); {
		case cause == nil:
		case !errors.Is(cause, context.DeadlineExceeded):
			return cause
		case f.Code == "cancelled" || f.Code == "broken": // by us
			f.Code, f.Err = "timeout", fmt.Errorf("the time of the item ended before the mail was sent: %w", f.Err)
		}
		f.After = delay(attempt)
	}
	return failure.Report(err)
}

// delay is the wait after a failed attempt: 5 s, then three times as long after each attempt, up to half an hour. A
// server that is down, or that delays unknown senders (greylisting), needs minutes. In a restored ledger, the attempts
// count up from a multiple of 1,000.
func delay(attempt int64) time.Duration {
	attempt %= 1_000
	d := 5 * time.Second
	for ; attempt > 1 && d < maxDelay; attempt-- {
		d *= 3
	}
	return min(d, maxDelay)
}

const maxDelay = 30 * time.Minute
