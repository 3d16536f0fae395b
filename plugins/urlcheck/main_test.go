package urlcheck

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

func TestMain(m *testing.M) { sdktest.Main(m, Plugin()) }

// leakFree fails the test if goroutines outlive it. Call it before anything that cleans up.
func leakFree(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
}

// defaults is the config as the SDK fills it in, but loopback is allowed and nothing takes long.
func defaults() Config {
	return Config{
		AllowPrivate: true, PerHost: 2, Deadline: 30 * time.Second, MaxBody: 1 << 20,
		UserAgent: "test-agent/1",
	}
}

// open makes a checker that is closed when the test ends.
func open(t testing.TB, cfg Config) *checker {
	t.Helper()
	must.OK(t, cfg.Validate())
	must.OK(t, cfg.Open(t.Context()))
	t.Cleanup(func() { must.OK(t, cfg.Close()) })
	return cfg.checker
}

// fine is a payload with the default accept list, or another.
func fine(url string, accept ...string) In {
	if accept == nil {
		accept = []string{"200-299"}
	}
	return In{URL: url, Accept: accept}
}

// code is the class of a check's error: "" if the URL was accepted.
func code(err error) string {
	if f, ok := errors.AsType[*failure.Error](err); ok {
		return f.Code
	}
	if err != nil {
		return "not a failure: " + err.Error()
	}
	return ""
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// request reads one request's head from conn and returns its method, "" at the end.
func request(conn net.Conn) string {
	head := make([]byte, 0, 1024)
	one := make([]byte, 1)
	for !strings.HasSuffix(string(head), "\r\n\r\n") {
		if _, err := io.ReadFull(conn, one); err != nil {
			return ""
		}
		head = append(head, one...)
	}
	method, _, _ := strings.Cut(string(head), " ")
	return method
}

// names is a resolver that answers what addr returns for the n-th look-up of a name, n from 1; an
// invalid address means that the name does not exist.
func names(t testing.TB, addr func(name string, n int) netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must.OK(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		asked := map[string]int{}
		buf := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := answer(buf[:n], asked, addr); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	t.Cleanup(func() {
		conn.Close()
		wg.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func answer(query []byte, asked map[string]int, addr func(string, int) netip.Addr) []byte {
	var msg dnsmessage.Message
	if err := msg.Unpack(query); err != nil || len(msg.Questions) != 1 {
		return nil
	}
	q := msg.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	if q.Type == dnsmessage.TypeA { // every look-up asks for A and AAAA
		asked[name]++
	}
	a := addr(name, max(asked[name], 1))
	msg.Response, msg.RecursionAvailable, msg.Additionals = true, true, nil
	head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
	switch {
	case !a.IsValid():
		msg.RCode = dnsmessage.RCodeNameError
	case a.Is4() && q.Type == dnsmessage.TypeA:
		msg.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: a.As4()}}}
	case a.Is6() && q.Type == dnsmessage.TypeAAAA:
		msg.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}}}
	}
	reply, err := msg.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// authorityCA signs certificates for tests.
type authorityCA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newCA(t testing.TB) *authorityCA {
	t.Helper()
	ca := &authorityCA{t: t, pool: x509.NewCertPool()}
	der, key := ca.sign(&x509.Certificate{
		Subject:      pkix.Name{CommonName: "Test CA"},
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	cert, err := x509.ParseCertificate(der)
	must.OK(t, err)
	ca.cert, ca.key = cert, key
	ca.pool.AddCert(cert)
	return ca
}

func (ca *authorityCA) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(ca.t, err)
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must.OK(ca.t, err)
	return der, key
}

// issue makes a certificate for 127.0.0.1 or for a name.
func (ca *authorityCA) issue(host string, notAfter time.Time) tls.Certificate {
	ca.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: notAfter.Add(-100 * 24 * time.Hour), NotAfter: notAfter,
		DNSNames: []string{"names.test"},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, key := ca.sign(template)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveTLS starts a server with the certificate, with HTTP/2 if wanted.
func serveTLS(t testing.TB, cert tls.Certificate, http2 bool, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	srv.EnableHTTP2 = http2
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // refused certificates are what is tested
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}
