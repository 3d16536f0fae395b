package mail

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ledgerd/ledgerd/sdk"
)

const doc = `Sends mails by SMTP: one item is one mail to one address.

    ledgerd run mail ann@example.com --set subject=Hello --set text='Good morning' \
      --with server=smtp.example.com:587 --with from=news@example.com \
      --with user=news --with password=file:/run/secrets/smtp

What the server refuses for good (` + "`smtp_550`" + `, an address that is none) is dead; what it refuses for now is
tried again. A mail of which nobody knows whether the server has taken it is in doubt: it is
never sent again unless a person says so.
`

// Config is what this machine has; the package comment has the whole story.
type Config struct {
	Server       string        `json:"server" default:"" schema:"maxLength=300" doc:"the SMTP server, host:port"`
	From         string        `json:"from" schema:"required,minLength=3,maxLength=500" doc:"the sender, as news@example.com or Example News <news@example.com>"`
	TLS          string        `json:"tls" default:"starttls" schema:"enum=starttls|opportunistic|tls|none" doc:"starttls (port 587 or 25), opportunistic: only if it is offered, tls from the first byte (465), or none"`
	CAFile       string        `json:"ca_file" default:"" doc:"file with certificates (PEM) to trust instead of the system's"`
	User         string        `json:"user" default:"" doc:"name to log in with; none means no login"`
	Password     string        `json:"password" secret:"true" doc:"to log in with"`
	Templates    string        `json:"templates" default:"" doc:"folder of templates, an absolute path"`
	Attachments  string        `json:"attachments" default:"" doc:"folder of files that may be attached, an absolute path"`
	MaxAttach    int64         `json:"max_attach" default:"10485760" schema:"min=0,max=104857600" doc:"bytes of all attachments of a mail"`
	Maildir      string        `json:"maildir" default:"" doc:"folder that gets the mails instead of the server, an absolute path: for trying out"`
	Timeout      time.Duration `json:"timeout" default:"1m" doc:"for connecting, and again for a mail up to its last byte; 1s to 1h"`
	ReplyTimeout time.Duration `json:"reply_timeout" default:"10m" doc:"for the server's answer to a whole mail; 1s to 1h"`

	from   address
	sender *sender
}

// In is one mail.
type In struct {
	To       string `json:"to" input:"line" schema:"maxLength=500" doc:"whom to send it to, one address"`
	Subject  string `json:"subject" default:"" schema:"maxLength=900" doc:"one line; over the template's"`
	Text     string `json:"text" default:"" doc:"the text, as it stands"`
	HTML     string `json:"html" default:"" doc:"the text as HTML, as it stands"`
	Template string `json:"template" default:"" schema:"maxLength=64,pattern=^([A-Za-z0-9][A-Za-z0-9_.-]*)?$" doc:"name of a template, instead of text and html"`
	Data     Data   `json:"data" doc:"what the template's fields say"`
	// Left out where there are none, so that the Message-ID of older mails stays what it was.
	Attach []string `json:"attach,omitempty" schema:"maxItems=20,minLength=1,maxLength=1000" doc:"files to attach, as paths below the folder of attachments"`
}

// Data are the fields of a template. Numbers stay as they are written.
type Data map[string]any

// UnmarshalJSON reads an object.
func (d *Data) UnmarshalJSON(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	fields := map[string]any{}
	err := dec.Decode(&fields)
	*d = fields
	return err
}

// Out is what came of it.
type Out struct {
	MessageID string `json:"message_id,omitempty" doc:"the mail's Message-ID, without angle brackets; the same for every attempt"`
	Bytes     int    `json:"bytes,omitempty" doc:"size of the mail"`
	Reply     string `json:"reply,omitempty" doc:"what the server answered to it, or the file of a maildir"`
}

// Validate refuses what cannot work, before the first item.
func (c *Config) Validate() error {
	host, port, err := net.SplitHostPort(c.Server)
	n, bad := strconv.ParseUint(port, 10, 16)
	if c.Maildir == "" && (err != nil || bad != nil || n == 0 || host == "") {
		return errors.New("server: write host:port, such as smtp.example.com:587")
	}
	if c.from, err = parseAddress(c.From); err != nil {
		return fmt.Errorf("from: %w", err)
	}
	switch {
	case c.Maildir != "" && !filepath.IsAbs(c.Maildir):
		return fmt.Errorf("maildir: %q is not an absolute path", c.Maildir)
	case c.Maildir != "" && c.Server != "":
		return errors.New("maildir: there is a server as well; a mail goes to one of the two")
	case c.User == "" && c.Password != "":
		return errors.New("user: there is a password, and nobody whose it is")
	case c.User != "" && c.mayBeClear() && !isLoopback(host):
		return fmt.Errorf("tls: %s could show the password to the network; use starttls or tls", c.TLS)
	case c.Timeout < time.Second || c.Timeout > time.Hour:
		return fmt.Errorf("timeout: %s is not between 1s and 1h", c.Timeout)
	case c.ReplyTimeout < time.Second || c.ReplyTimeout > time.Hour:
		return fmt.Errorf("reply_timeout: %s is not between 1s and 1h", c.ReplyTimeout)
	}
	return cmp.Or(checkFolder("templates", c.Templates), checkFolder("attachments", c.Attachments))
}

// mayBeClear says whether what is sent may go without encryption.
func (c *Config) mayBeClear() bool { return c.TLS == "none" || c.TLS == "opportunistic" }

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Open prepares the connections, or the folder; nothing is sent before the first item.
func (c *Config) Open(context.Context) (err error) {
	if c.Maildir != "" {
		return maildir{c.Maildir}.make()
	}
	c.sender, err = newSender(c)
	return err
}

// Check logs in and out again.
func (c *Config) Check(ctx context.Context) error {
	if c.sender == nil {
		return nil
	}
	return c.sender.check(ctx)
}

// Close ends idle connections.
func (c *Config) Close() error {
	if c.sender != nil {
		c.sender.close()
	}
	return nil
}

// Plugin is the mail plugin.
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
		out.Reply, err = cfg.sender.send(ctx, m)
	}
	return out, report(ctx, err, it.Attempt)
}

// failure is why a mail was not sent, or may not have been.
type failure struct {
	code string
	fate fate
	err  error
}

type fate int

const (
	again fate = iota // nothing was sent, and trying again can help
	never             // nothing was sent, and trying again cannot help
	doubt             // nobody knows
)

func (f *failure) Error() string { return fmt.Sprintf("%.400s", f.err) } // servers write part of it
func (f *failure) Unwrap() error { return f.err }

func transient(code string, err error) *failure { return &failure{code: code, err: err} }
func permanent(code string, err error) *failure { return &failure{code: code, fate: never, err: err} }
func unknown(code string, err error) *failure   { return &failure{code: code, fate: doubt, err: err} }

// report puts a failure into the words of the SDK. What was not sent because the item was to end
// is told by the cause of that; a timeout is a failure like others, since nothing was sent.
func report(ctx context.Context, err error, attempt int64) error {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return err
	}
	coded := sdk.Code(f.code, f)
	switch cause := context.Cause(ctx); {
	case f.fate == doubt:
		return sdk.Doubt(coded)
	case f.fate == never:
		return sdk.Permanent(coded)
	case cause != nil && !errors.Is(cause, context.DeadlineExceeded):
		return cause
	}
	return sdk.RetryAfter(delay(attempt), coded)
}

// delay is how long to wait after an attempt that failed: 5 s, then three times as long each time, up
// to half an hour. A server that is down or that makes strangers wait (greylisting) needs minutes.
func delay(attempt int64) time.Duration {
	d := 5 * time.Second
	for ; attempt > 1 && d < maxDelay; attempt-- {
		d *= 3
	}
	return min(d, maxDelay)
}

const maxDelay = 30 * time.Minute
