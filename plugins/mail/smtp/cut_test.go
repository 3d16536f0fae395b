package smtp

import (
	"io"
	"net"
	"testing"
	"time"

	gosmtp "github.com/emersion/go-smtp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp/smtptest"
)

// TestCut cuts the connection to a real server after every byte that the client sends, and after every byte that the
// server answers. With TLS, it cuts at every 31st byte. The reported result is always correct: after "sent" the server
// has the mail; after "not sent" the server does not have it.
func TestCut(t *testing.T) {
	leakFree(t)
	cert, ca := smtptest.Certificate(t)
	for _, tt := range []struct {
		name    string
		server  func(*gosmtp.Server)
		mode    string
		step    int
		answers bool // cut the server's answers instead of the client's data
	}{
		{"mail", nil, "none", 1, false},
		{"answers", nil, "none", 1, true},
		{"mail over TLS", func(s *gosmtp.Server) { s.TLSConfig, s.Domain = smtptest.TLS(cert), smtptest.Implicit }, "tls", 31,
			false},
		{"answers over TLS", func(s *gosmtp.Server) { s.TLSConfig, s.Domain = smtptest.TLS(cert), smtptest.Implicit }, "tls",
			31, true},
		{"answers over STARTTLS", func(s *gosmtp.Server) { s.TLSConfig = smtptest.TLS(cert) }, "starttls", 31, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var box smtptest.Mailbox
			box.Listen(t, tt.server)
			seen := map[failure.Fate]int{}
			for n, whole := 0, false; !whole; n += tt.step {
				before := len(box.Taken())
				through, settled := cutter(t, box.Addr, n, tt.answers)
				server := plain(through)
				server.Timeout, server.TLS, server.CAFile = 10*time.Second, tt.mode, ca
				s := open(t, server)
				err := post(t.Context(), s)
				s.Close()
				whole = settled()
				taken := len(box.Taken()) > before
				f, _ := end(err)
				seen[f]++
				if f == sent && !taken || (f == failure.Again || f == failure.Never) && taken {
					t.Fatalf("cut after %d bytes: taken is %v, and the error %v", n, taken, err)
				}
			}
			if seen[sent] == 0 || seen[failure.Again] < 10 || tt.answers && seen[failure.Doubt] == 0 || seen[failure.Never] > 0 {
				t.Errorf("outcomes %v", seen)
			}
			t.Logf("%d not sent, %d in doubt, %d sent", seen[failure.Again], seen[failure.Doubt], seen[sent])
		})
	}
}

// cutter starts a proxy that closes both of its connections after it passed on n bytes of one side. settled waits
// until the server has closed its side and reports whether the proxy passed on everything.
func cutter(t *testing.T, server string, n int, answers bool) (addr string, settled func() (whole bool)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	done := make(chan bool, 1)
	go func() {
		defer l.Close()
		client, err := l.Accept()
		if err != nil {
			done <- false
			return
		}
		defer client.Close()
		upstream, err := net.Dial("tcp", server)
		if err != nil {
			t.Error(err)
			done <- false
			return
		}
		from, to := client, upstream
		if answers {
			from, to = upstream, client
		}
		other := make(chan struct{})
		go func() {
			defer close(other)
			_, _ = io.Copy(from, to)
			_ = from.(*net.TCPConn).CloseWrite()
		}()
		passed, err := io.CopyN(to, from, int64(n))
		whole := err != nil || passed < int64(n)
		// The server gets the n bytes and then the end of the stream. Waiting for its end makes sure that it has
		// decided.
		client.Close()
		_ = upstream.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, upstream)
		upstream.Close()
		<-other
		done <- whole
	}()
	return l.Addr().String(), func() bool { return <-done }
}
