// Package smtptest has mail servers on loopback for tests: a real server, and functions for servers that a test writes
// itself.
package smtptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/ledgerd/ledgerd/internal/must"
)

// Mail is a mail that the server accepted.
type Mail struct {
	From, To string // To is the last of All
	All      []string
	Content  []byte
}

// Mailbox is a real SMTP server on loopback. It stores the mails that it accepts.
type Mailbox struct {
	Addr string // host:port, set by Listen

	// Each function returns the server's answer at its step. nil accepts.
	AtRcpt, AtData func(address string) error
	Login          string // user:password of the only login; "" means no login

	mu       sync.Mutex
	mails    []Mail
	sessions int

	encrypted atomic.Bool
}

// Implicit is the domain that makes Listen use TLS from the first byte.
const Implicit = "implicit.test"

// TLS returns the config of a server with this certificate.
func TLS(cert tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

// Listen starts the server. config, if not nil, changes the server first.
func (b *Mailbox) Listen(t testing.TB, config func(*smtp.Server)) {
	t.Helper()
	srv := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sessions++
		return &session{box: b, conn: c}, nil
	}))
	srv.Domain = "box.test"
	srv.ErrorLog = log.New(io.Discard, "", 0)
	srv.AllowInsecureAuth = true
	if config != nil {
		config(srv)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	b.Addr = l.Addr().String()
	if srv.Domain == Implicit {
		l = tls.NewListener(l, srv.TLSConfig)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // returns after Close
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		_ = l.Close() // Serve may not have begun, and then srv does not know l
		<-done
	})
}

// Taken returns the accepted mails.
func (b *Mailbox) Taken() []Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Mail(nil), b.mails...)
}

// Connections returns the number of connections so far.
func (b *Mailbox) Connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions
}

// Encrypted reports whether the newest mail came over TLS.
func (b *Mailbox) Encrypted() bool { return b.encrypted.Load() }

// session is one connection to the server.
type session struct {
	box  *Mailbox
	conn *smtp.Conn
	mail Mail
	in   bool
}

func (s *session) AuthMechanisms() []string {
	if s.box.Login == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user+":"+password != s.box.Login {
			return &smtp.SMTPError{Code: 535, Message: "no " + password}
		}
		s.in = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.box.Login != "" && !s.in {
		return smtp.ErrAuthRequired
	}
	if s.mail.From != "" {
		return &smtp.SMTPError{Code: 503, EnhancedCode: smtp.NoEnhancedCode, Message: "nested MAIL"}
	}
	_, encrypted := s.conn.TLSConnectionState()
	s.box.encrypted.Store(encrypted)
	s.mail = Mail{From: from}
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mail.To, s.mail.All = to, append(s.mail.All, to)
	return answer(s.box.AtRcpt, to)
}

func (s *session) Data(r io.Reader) error {
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mail.Content = content
	if err := answer(s.box.AtData, s.mail.To); err != nil {
		return err
	}
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	s.box.mails = append(s.box.mails, s.mail)
	return nil
}

func (s *session) Reset()        { s.mail = Mail{} }
func (s *session) Logout() error { return nil }

func answer(f func(string) error, address string) error {
	if f == nil {
		return nil
	}
	return f(address)
}

// Answers returns a function that answers with this code.
func Answers(code int, text string) func(string) error {
	return func(string) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: text}
	}
}

// Certificate returns a certificate for 127.0.0.1 and the path of a file for ca_file.
func Certificate(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "box.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.OK(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	must.OK(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
