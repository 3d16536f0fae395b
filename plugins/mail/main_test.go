package mail

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, Plugin()) }

// leakFree fails the test if goroutines outlive it. Call it before anything that cleans up.
func leakFree(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

// got is a mail that a server has taken.
type got struct {
	from, to string
	content  []byte
}

// mailbox is a real SMTP server on loopback and what it has taken.
type mailbox struct {
	addr string

	// What it answers instead of taking a mail; nil takes it.
	atMail, atRcpt, atData func(address string) error
	login                  string // user:password that is let in; "" asks for none

	mu       sync.Mutex
	mails    []got
	sessions int

	encrypted atomic.Bool // the newest mail came over TLS
}

// implicit is the domain of a server with TLS from the first byte.
const implicit = "implicit.test"

func serverTLS(cert tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

// listen starts the server. config, if there is one, changes it before.
func (b *mailbox) listen(t testing.TB, config func(*smtp.Server)) {
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
	if err != nil {
		t.Fatal(err)
	}
	b.addr = l.Addr().String()
	if srv.Domain == implicit {
		l = tls.NewListener(l, srv.TLSConfig)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with Close
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
}

func (b *mailbox) taken() []got {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]got(nil), b.mails...)
}

func (b *mailbox) connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions
}

// session is one connection to the server.
type session struct {
	box  *mailbox
	conn *smtp.Conn
	mail got
	in   bool
}

func (s *session) AuthMechanisms() []string {
	if s.box.login == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user+":"+password != s.box.login {
			return &smtp.SMTPError{Code: 535, Message: "no " + password}
		}
		s.in = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.box.login != "" && !s.in {
		return smtp.ErrAuthRequired
	}
	_, encrypted := s.conn.TLSConnectionState()
	s.box.encrypted.Store(encrypted)
	s.mail = got{from: from}
	return answer(s.box.atMail, from)
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.mail.to = to
	return answer(s.box.atRcpt, to)
}

func (s *session) Data(r io.Reader) error {
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.mail.content = content
	if err := answer(s.box.atData, s.mail.to); err != nil {
		return err
	}
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	s.box.mails = append(s.box.mails, s.mail)
	return nil
}

func (s *session) Reset()        {}
func (s *session) Logout() error { return nil }

func answer(f func(string) error, address string) error {
	if f == nil {
		return nil
	}
	return f(address)
}

// says answers with a code.
func says(code int, text string) func(string) error {
	return func(string) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: text}
	}
}

// raw is a server that does with each connection what talk says; talk's connection is closed
// when it returns and when the test ends. It returns host:port.
func raw(t testing.TB, talk func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				defer conn.Close()
				talk(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

// polite answers what every server answers, until a line begins with until, which it returns; ""
// if the connection ended before.
func polite(conn net.Conn, r *bufio.Reader, until string) string {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return ""
		}
		if strings.HasPrefix(strings.ToUpper(line), until) {
			return line
		}
		if _, err := io.WriteString(conn, "250 ok\r\n"); err != nil {
			return ""
		}
	}
}

// toEnd reads a mail to its end and says whether it got there.
func toEnd(r *bufio.Reader) bool {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return false
		}
		if bytes.Equal(line, []byte(".\r\n")) {
			return true
		}
	}
}

// defaults is the config as the SDK fills it in, for a server without TLS.
func defaults(server string) Config {
	return Config{Server: server, From: "Example News <news@example.com>", TLS: "none", Timeout: time.Minute, ReplyTimeout: 10 * time.Minute}
}

// short is a timeout for who waits in vain. It is below what a config may have: set it after open.
const short = 250 * time.Millisecond

// open makes a config ready, until the test ends.
func open(t testing.TB, cfg Config) *Config {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cfg.Close(); err != nil {
			t.Error(err)
		}
	})
	return &cfg
}

// post sends a mail as an item would.
func post(ctx context.Context, cfg *Config, in In) (Out, error) {
	return work(ctx, cfg, sdk.Item[In]{Payload: in, IdempotencyKey: "mail//" + in.To + "/1"})
}

// hello is a mail to somebody.
func hello(to string) In { return In{To: to, Subject: "Hello", Text: "Good morning\n"} }

// end is what became of a mail: its fate, and its code.
func end(err error) (fate, string) {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.fate, f.code
	}
	return sent, ""
}

// sent is the fate of a mail that is.
const sent fate = -1

// certificate makes one for 127.0.0.1 and a file that says to trust it.
func certificate(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "box.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
