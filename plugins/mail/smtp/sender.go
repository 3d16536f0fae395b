// Package smtp sends mails to a server one by one and reports for each mail whether the server has taken it. It keeps
// connections open for a short time. Until the final dot has left this machine, the mail counts as not sent. After
// that, only the server's answer tells whether the server has taken the mail. Without an answer, the result is
// unknown.
package smtp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// Server has the address of an SMTP server and the way to use it. It is part of a plugin's config.
type Server struct {
	Addr         string        `json:"server" default:"" schema:"maxLength=300" doc:"the SMTP server, host:port"`
	TLS          string        `json:"tls" default:"starttls" schema:"enum=starttls|opportunistic|tls|none" doc:"starttls (port 587 or 25), opportunistic: only if it is offered, tls from the first byte (465), or none"`
	CAFile       string        `json:"ca_file" default:"" doc:"file with certificates (PEM) to trust instead of the system's"`
	User         string        `json:"user" default:"" doc:"name to log in with; none means no login"`
	Password     string        `json:"password" secret:"true" doc:"to log in with"`
	Hello        string        `json:"hello" tune:"true" default:"" schema:"maxLength=255,pattern=^[!-~]*$" doc:"name of this machine for EHLO; none means its host name"`
	Timeout      time.Duration `json:"timeout" tune:"true" default:"1m" doc:"for connecting, and again for a mail up to its last byte; 1s to 1h"`
	ReplyTimeout time.Duration `json:"reply_timeout" tune:"true" default:"10m" doc:"for the server's answer to a whole mail; 1s to 1h"`
}

// Validate refuses settings that cannot work. The error begins with the name of the setting.
func (s Server) Validate() error {
	host, port, err := net.SplitHostPort(s.Addr)
	n, bad := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || bad != nil || n == 0 || host == "":
		return errors.New("server: write host:port, such as smtp.example.com:587")
	case s.User == "" && s.Password != "":
		return errors.New("user: missing; there is a password")
	case s.User != "" && s.mayBeClear() && !isLoopback(host):
		return fmt.Errorf("tls: %s could show the password to the network; use starttls or tls", s.TLS)
	case s.Timeout < time.Second || s.Timeout > time.Hour:
		return fmt.Errorf("timeout: %s is not between 1s and 1h", s.Timeout)
	case s.ReplyTimeout < time.Second || s.ReplyTimeout > time.Hour:
		return fmt.Errorf("reply_timeout: %s is not between 1s and 1h", s.ReplyTimeout)
	}
	return nil
}

// mayBeClear reports whether a mail may be sent without encryption.
func (s Server) mayBeClear() bool { return s.TLS == "none" || s.TLS == "opportunistic" }

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Sender holds the connections to a server. It is safe for concurrent use.
type Sender struct {
	server Server
	host   string
	tls    *tls.Config

	mu     sync.Mutex
	idle   []*connection // newest last
	closed bool
}

// New returns a sender for a valid server. It does not connect.
func New(server Server) (*Sender, error) {
	host, _, err := net.SplitHostPort(server.Addr)
	if err != nil {
		return nil, err
	}
	s := &Sender{server: server, host: host, tls: &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}}
	// Opportunistic TLS does not check certificates, because an active attacker could remove the offer of TLS anyway.
	// It protects only against eavesdropping.
	s.tls.InsecureSkipVerify = server.TLS == "opportunistic"
	if server.CAFile == "" {
		return s, nil
	}
	pem, err := os.ReadFile(server.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	s.tls.RootCAs = x509.NewCertPool()
	if !s.tls.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file: no certificate in %s", server.CAFile)
	}
	return s, nil
}

// Send sends a mail to all recipients or to none and returns the server's answer. content is the header and the body.
// The addresses have no names or brackets and must be safe in commands. The error is a *failure.Error. If ctx ends
// before the mail is sent, the mail may be tried again.
func (s *Sender) Send(ctx context.Context, from string, to []string, content []byte) (reply string, err error) {
	for {
		c, err := s.connect(ctx)
		if err != nil {
			return "", err
		}
		reply, err = s.transfer(ctx, c, from, to, content)
		if f, ok := errors.AsType[*failure.Error](err); ok && f.Code == stale {
			if ctx.Err() == nil {
				continue // the server has closed a kept connection; a new connection is never stale
			}
			f.Code = "broken" // by us
		}
		return reply, err
	}
}

// stale is the code of a kept connection that the server has closed. Users never see it.
const stale = "stale"

// Check connects, logs in and disconnects.
func (s *Sender) Check(ctx context.Context) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.wire.Close()
	if err := c.wire.SetDeadline(time.Now().Add(s.server.Timeout)); err != nil {
		return err
	}
	if err := c.Quit(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("QUIT: %w", err)
	}
	return nil
}

// connect returns an idle connection or a new one.
func (s *Sender) connect(ctx context.Context) (*connection, error) {
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

// maxIdle is the time after which an idle connection is closed.
const maxIdle = 10 * time.Second

// keep stores a connection for the next mail.
func (s *Sender) keep(c *connection) {
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

// Close closes idle connections now and other connections after their mails.
func (s *Sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.idle {
		c.old.Stop()
		c.wire.Close()
	}
	s.idle = nil
}
