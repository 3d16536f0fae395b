// Package smtp hands mails to a server, each by itself, and knows of each whether the server has taken
// it. It keeps connections for a while. Until the final dot has left this machine, the mail counts as
// not sent. After that only the server's answer tells whether it has taken the mail; without one it is
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

// Server is whom mails are handed to, and how: a part of a plugin's config.
type Server struct {
	Addr         string        `json:"server" default:"" schema:"maxLength=300" doc:"the SMTP server, host:port"`
	TLS          string        `json:"tls" default:"starttls" schema:"enum=starttls|opportunistic|tls|none" doc:"starttls (port 587 or 25), opportunistic: only if it is offered, tls from the first byte (465), or none"`
	CAFile       string        `json:"ca_file" default:"" doc:"file with certificates (PEM) to trust instead of the system's"`
	User         string        `json:"user" default:"" doc:"name to log in with; none means no login"`
	Password     string        `json:"password" secret:"true" doc:"to log in with"`
	Timeout      time.Duration `json:"timeout" tune:"true" default:"1m" doc:"for connecting, and again for a mail up to its last byte; 1s to 1h"`
	ReplyTimeout time.Duration `json:"reply_timeout" tune:"true" default:"10m" doc:"for the server's answer to a whole mail; 1s to 1h"`
}

// Validate refuses what cannot work. The error begins with the name of the setting.
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

// mayBeClear reports whether a mail may go without encryption.
func (s Server) mayBeClear() bool { return s.TLS == "none" || s.TLS == "opportunistic" }

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// Sender has the connections to a server. It is safe for concurrent use.
type Sender struct {
	server Server
	host   string
	tls    *tls.Config

	mu     sync.Mutex
	idle   []*connection // the newest last
	closed bool
}

// New prepares for mails to a server that is valid; it does not connect yet.
func New(server Server) (*Sender, error) {
	host, _, err := net.SplitHostPort(server.Addr)
	if err != nil {
		return nil, err
	}
	s := &Sender{server: server, host: host, tls: &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}}
	// Certificates are not checked: an active attacker could remove the offer of TLS anyway. Opportunistic
	// TLS protects against eavesdropping only.
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

// Send sends a mail, its header and body, to all who are to get it or to none, and returns what the server answered.
// The addresses are bare and stand in commands as they are. The error is a *failure.Error. If ctx ends before
// the mail is sent, the mail may be tried again.
func (s *Sender) Send(ctx context.Context, from string, to []string, content []byte) (reply string, err error) {
	for {
		c, err := s.connect(ctx)
		if err != nil {
			return "", err
		}
		reply, err = s.transfer(ctx, c, from, to, content)
		if f, ok := errors.AsType[*failure.Error](err); ok && f.Code == stale && ctx.Err() == nil {
			continue // a server may close an idle connection; a new one is never stale
		}
		return reply, err
	}
}

// stale is the code of a connection that was kept and is not taken any more. It is not shown.
const stale = "stale"

// Check connects, logs in and leaves.
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

// connect gives a connection that is ready for a mail: one that is idle, or a new one.
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

// maxIdle is how long a connection waits for another mail.
const maxIdle = 10 * time.Second

// keep keeps a connection on which a mail has ended well.
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

// Close ends idle connections, and others when their mails have ended.
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
