package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

const (
	maxReplies = 1 << 20          // bytes that a server may say in the course of one mail
	maxIdle    = 10 * time.Second // how long a connection waits for another mail
)

// sender has the connections to the server. It is safe for concurrent use.
type sender struct {
	cfg  *Config
	host string
	tls  *tls.Config

	mu     sync.Mutex
	idle   []*connection // the newest last
	closed bool
}

func newSender(cfg *Config) (*sender, error) {
	host, _, err := net.SplitHostPort(cfg.Server)
	if err != nil {
		return nil, err
	}
	s := &sender{cfg: cfg, host: host, tls: &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}}
	// Who can take away the offer of TLS needs no false certificate: it helps against listeners only.
	s.tls.InsecureSkipVerify = cfg.TLS == "opportunistic"
	if cfg.CAFile == "" {
		return s, nil
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	s.tls.RootCAs = x509.NewCertPool()
	if !s.tls.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file: no certificate in %s", cfg.CAFile)
	}
	return s, nil
}

// connection is logged in and may be told the next mail.
type connection struct {
	*smtp.Client
	wire *wire
	used bool
	old  *time.Timer // closes it when it has been idle for too long
}

// wire is the bare connection, below TLS. It knows whether all that was written has left.
type wire struct {
	net.Conn
	torn atomic.Bool  // something was not handed to the system in full
	left atomic.Int64 // bytes that may still be read
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if n < len(p) {
		w.torn.Store(true)
	}
	return n, err
}

var errTalksTooMuch = fmt.Errorf("the server says more than %d bytes", maxReplies)

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.left.Add(-int64(n)) < 0 {
		return 0, errTalksTooMuch
	}
	return n, err
}

// silent says that the server has neither closed the connection nor said anything unasked. It does
// not wait.
func (w *wire) silent() bool {
	raw, err := w.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	var peeked error
	err = raw.Read(func(fd uintptr) bool {
		_, _, peeked = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		return true
	})
	return err == nil && errors.Is(peeked, syscall.EAGAIN)
}

// connect gives a connection that is ready for a mail: one that is idle, or a new one.
func (s *sender) connect(ctx context.Context) (*connection, error) {
	for {
		s.mu.Lock()
		n := len(s.idle)
		if n == 0 {
			s.mu.Unlock()
			return s.dial(ctx)
		}
		c := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		if c.old.Stop() && c.wire.silent() {
			c.wire.left.Store(maxReplies)
			return c, nil
		}
		c.wire.Close()
	}
}

// keep keeps a connection on which a mail has ended well.
func (s *sender) keep(c *connection) {
	c.used = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.wire.Close()
		return
	}
	c.old = time.AfterFunc(maxIdle, func() { c.wire.Close() })
	s.idle = append(s.idle, c)
}

func (s *sender) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.idle {
		c.old.Stop()
		c.wire.Close()
	}
	s.idle = nil
}

// dial connects and logs in. The error is a *failure; nothing that goes wrong here is the fault of
// a mail.
func (s *sender) dial(ctx context.Context) (*connection, error) {
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(bounded, "tcp", s.cfg.Server)
	if err != nil {
		return nil, transient("connect", err)
	}
	c := &connection{wire: &wire{Conn: conn}}
	c.wire.left.Store(maxReplies)
	stop := context.AfterFunc(bounded, func() { conn.Close() })
	err = s.greet(c)
	if !stop() {
		err = transient("timeout", fmt.Errorf("the server takes no mail within %s", s.cfg.Timeout))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// greet brings a new connection to where mails are taken.
func (s *sender) greet(c *connection) (err error) {
	var stream net.Conn = c.wire
	if s.cfg.TLS == "tls" {
		over := tls.Client(c.wire, s.tls)
		if err := over.Handshake(); err != nil {
			return transient("tls", err)
		}
		stream = over
	}
	if c.Client, err = smtp.NewClient(stream, s.host); err != nil {
		return transient("connect", fmt.Errorf("greeting: %w", err))
	}
	c.SkipSMTPUTF8(true) // all addresses and headers are ASCII, so that any server may pass the mail on
	if err := c.Hello(helloName()); err != nil {
		return transient("connect", fmt.Errorf("EHLO: %w", err))
	}
	offered, _ := c.Extension("STARTTLS")
	switch {
	case s.cfg.TLS == "starttls" && !offered:
		return transient("tls", errors.New("the server does not offer STARTTLS; nothing is sent in the clear unless you say tls=none"))
	case s.cfg.TLS == "starttls", s.cfg.TLS == "opportunistic" && offered:
		if err := c.StartTLS(s.tls); err != nil {
			return transient("tls", err)
		}
	}
	return s.logIn(c)
}

// helloName is how this machine introduces itself.
func helloName() string {
	name, err := os.Hostname()
	if err != nil || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "localhost"
	}
	return name
}

// logIn logs in, with the strongest of what the server offers. Errors say no word of the server,
// which may repeat what it was told.
func (s *sender) logIn(c *connection) error {
	if s.cfg.User == "" {
		return nil
	}
	user, password := s.cfg.User, s.cfg.Password
	_, offered := c.Extension("AUTH")
	for _, m := range []struct {
		name string
		auth smtp.Auth
	}{
		{"SCRAM-SHA-256", smtp.ScramSHA256Auth(user, password)},
		{"PLAIN", smtp.PlainAuth("", user, password, s.host, s.cfg.mayBeClear())},
		{"LOGIN", smtp.LoginAuth(user, password, s.host, s.cfg.mayBeClear())},
		{"CRAM-MD5", smtp.CRAMMD5Auth(user, password)},
	} {
		if !offers(offered, m.name) {
			continue
		}
		err := c.Auth(m.auth)
		if reply, ok := errors.AsType[*textproto.Error](err); ok {
			return transient("auth", fmt.Errorf("the server does not let %s in (%s): %d", user, m.name, reply.Code))
		}
		if err != nil {
			return transient("auth", fmt.Errorf("logging in as %s (%s) broke off", user, m.name))
		}
		return nil
	}
	return transient("auth", errors.New("the server offers no way to log in that is known here: SCRAM-SHA-256, PLAIN, LOGIN, CRAM-MD5"))
}

func offers(list, name string) bool {
	for word := range strings.FieldsSeq(list) {
		if strings.EqualFold(word, name) {
			return true
		}
	}
	return false
}

// check connects, logs in and leaves.
func (s *sender) check(ctx context.Context) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.wire.Close()
	if err := c.wire.SetDeadline(time.Now().Add(s.cfg.Timeout)); err != nil {
		return err
	}
	if err := c.Quit(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("QUIT: %w", err)
	}
	return nil
}
