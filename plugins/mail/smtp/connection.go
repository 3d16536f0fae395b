package smtp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"strings"
	"sync/atomic"
	"time"

	gosmtp "github.com/wneessen/go-mail/smtp"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// connection is a connection that is logged in and can take a mail.
type connection struct {
	*gosmtp.Client
	wire *wire
	tls  bool        // the handshake is done
	used bool        // it has taken a mail before
	old  *time.Timer // closes the connection when it has been idle for maxIdle
}

// wire is the connection below TLS. It records whether the system accepted all written bytes.
type wire struct {
	net.Conn
	writeFailed atomic.Bool  // the system did not accept all bytes of a write
	left        atomic.Int64 // bytes that may still be read
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if n < len(p) {
		w.writeFailed.Store(true)
	}
	return n, err
}

// maxReplies is the most bytes that a server may send during one mail.
const maxReplies = 1 << 20

var errTalksTooMuch = fmt.Errorf("the server sends more than %d bytes", maxReplies)

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.left.Add(-int64(n)) < 0 {
		return 0, errTalksTooMuch
	}
	return n, err
}

// dial connects and logs in. The error is a *failure.Error. It is never permanent, because the mail did not cause it.
func (s *Sender) dial(ctx context.Context) (*connection, error) {
	bounded, cancel := context.WithTimeout(ctx, s.server.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(bounded, "tcp", s.server.Addr)
	if err != nil {
		code := "connect"
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			code = "timeout"
		}
		return nil, failure.Transient(code, err)
	}
	c := &connection{wire: &wire{Conn: conn}}
	c.wire.left.Store(maxReplies)
	stop := context.AfterFunc(bounded, func() { conn.Close() })
	err = s.greet(c)
	if !stop() {
		err = failure.Transient("timeout", fmt.Errorf("the server takes no mail within %s", s.server.Timeout))
		if ctx.Err() != nil {
			err = failure.Transient("cancelled", context.Cause(ctx))
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// greet does the greeting, the TLS handshake and the login of a new connection.
func (s *Sender) greet(c *connection) (err error) {
	var stream net.Conn = c.wire
	if s.server.TLS == "tls" {
		if stream, err = s.encrypt(c); err != nil {
			return err
		}
	}
	if c.Client, err = gosmtp.NewClient(&replies{Conn: stream}, s.host); err != nil {
		return failure.Transient("connect", fmt.Errorf("greeting: %w", err))
	}
	if err := s.introduce(c); err != nil {
		return failure.Transient("connect", err)
	}
	offered, _ := c.Extension("STARTTLS")
	switch {
	case s.server.TLS == "starttls" && !offered:
		return failure.Transient("tls", errors.New("the server does not offer STARTTLS; nothing is sent in the clear "+
			"unless you say tls=none"))
	case s.server.TLS == "starttls", s.server.TLS == "opportunistic" && offered:
		if err := s.startTLS(c); err != nil {
			return err
		}
	}
	return s.logIn(c)
}

// encrypt does the TLS handshake.
func (s *Sender) encrypt(c *connection) (net.Conn, error) {
	over := tls.Client(c.wire, s.tls)
	if err := over.Handshake(); err != nil {
		return nil, failure.Transient("tls", err)
	}
	c.tls = true
	return over, nil
}

// startTLS switches to TLS and uses a new client. The new client does not know the extensions that the server offered
// without TLS. The library's StartTLS would remove [replies] from the connection.
func (s *Sender) startTLS(c *connection) (err error) {
	if err := c.Text.PrintfLine("STARTTLS"); err != nil {
		return failure.Transient("tls", err)
	}
	// A new client expects a greeting with code 220. The answer to STARTTLS has this code, too.
	if c.Client, err = gosmtp.NewClient(&replies{Conn: c.wire}, s.host); err != nil {
		return failure.Transient("tls", fmt.Errorf("STARTTLS: %w", err))
	}
	stream, err := s.encrypt(c)
	if err != nil {
		return err
	}
	c.Text = textproto.NewConn(&replies{Conn: stream}) // drops bytes that came before TLS
	if err := s.introduce(c); err != nil {
		return failure.Transient("tls", err)
	}
	return nil
}

// introduce sends EHLO and learns the server's extensions.
func (s *Sender) introduce(c *connection) error {
	c.SkipSMTPUTF8(true) // all addresses and headers are ASCII, so the mail does not need a server with SMTPUTF8
	if err := c.Hello(cmp.Or(s.server.Hello, hostName())); err != nil {
		return fmt.Errorf("EHLO: %w", err)
	}
	return nil
}

// hostName is the name of this machine, if it can stand in EHLO.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "localhost"
	}
	return name
}

// logIn logs in with the strongest method that the server offers. Errors do not quote the server's text, because it
// may repeat secrets.
func (s *Sender) logIn(c *connection) error {
	if s.server.User == "" {
		return nil
	}
	user, password := s.server.User, s.server.Password
	mayShow := c.tls || s.server.mayBeClear() // [replies] hides TLS from the client
	_, offered := c.Extension("AUTH")
	for _, m := range []struct {
		name string
		auth gosmtp.Auth
	}{
		{"SCRAM-SHA-256", gosmtp.ScramSHA256Auth(user, password)},
		{"PLAIN", gosmtp.PlainAuth("", user, password, s.host, mayShow)},
		{"LOGIN", gosmtp.LoginAuth(user, password, s.host, mayShow)},
		{"CRAM-MD5", gosmtp.CRAMMD5Auth(user, password)},
	} {
		if !offers(offered, m.name) {
			continue
		}
		err := c.Auth(m.auth)
		if reply, ok := errors.AsType[*textproto.Error](err); ok {
			return failure.Transient("auth", fmt.Errorf("the server does not let %s in (%s): %d", user, m.name, reply.Code))
		}
		if err != nil {
			return failure.Transient("auth", fmt.Errorf("logging in as %s (%s) broke off", user, m.name))
		}
		return nil
	}
	return failure.Transient("auth", errors.New("the server offers no way to log in that is known here: SCRAM-SHA-256, "+
		"PLAIN, LOGIN, CRAM-MD5"))
}

func offers(list, name string) bool {
	for word := range strings.FieldsSeq(list) {
		if strings.EqualFold(word, name) {
			return true
		}
	}
	return false
}
