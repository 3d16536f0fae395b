package smtp

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/rawtest"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp/smtptest"
)

// terse is a server that answers with codes without text and offers extensions in small letters.
type terse struct {
	mode   string // TLS mode, as in [Server]
	tls    *tls.Config
	offers string // all lines of the answer to EHLO except the last
	tail   string // sent together with the answer to STARTTLS

	mu       sync.Mutex
	commands []string
	mails    int
}

func (s *terse) talk(c net.Conn) {
	if s.mode == "tls" {
		c = tls.Server(c, s.tls)
	}
	r := bufio.NewReader(c)
	_, _ = io.WriteString(c, "220\r\n")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		s.mu.Lock()
		s.commands = append(s.commands, strings.TrimSpace(line))
		s.mu.Unlock()
		answer := "250\r\n" // MAIL, RCPT
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word {
		case "EHLO":
			answer = s.offers + answer
			if _, over := c.(*tls.Conn); s.mode == "starttls" && !over {
				answer = "250-raw.test\r\n250-starttls\r\n250\r\n"
			}
		case "STARTTLS":
			_, _ = io.WriteString(c, "220\r\n"+s.tail)
			c = tls.Server(c, s.tls)
			r = bufio.NewReader(c)
			continue
		case "AUTH":
			answer = "235\r\n"
		case "DATA":
			_, _ = io.WriteString(c, "354\r\n")
			if !smtptest.ToEnd(r) {
				return
			}
			s.mu.Lock()
			s.mails++
			s.mu.Unlock()
		case "QUIT":
			answer = "221\r\n"
		}
		_, _ = io.WriteString(c, answer)
	}
}

// told returns the received commands that begin with one of the words.
func (s *terse) told(words ...string) (told []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if word, _, _ := strings.Cut(c, " "); slices.Contains(words, word) {
			told = append(told, c)
		}
	}
	return told
}

// listen starts the server and returns a sender that uses it.
func (s *terse) listen(t *testing.T, user string) *Sender {
	t.Helper()
	cert, ca := smtptest.Certificate(t)
	s.tls = smtptest.TLS(cert)
	server := plain(rawtest.Serve(t, s.talk))
	server.TLS, server.CAFile, server.User = s.mode, ca, user
	if user != "" {
		server.Password = "secret"
	}
	return open(t, server)
}

// TestBareCodes: the client understands replies without text and extensions in small letters.
func TestBareCodes(t *testing.T) {
	leakFree(t)
	const small = "250-\r\n250-8bitmime\r\n250-size 100\r\n250-auth login plain\r\n"
	for _, tt := range []struct {
		name, mode, offers, user string
		want                     []string
	}{
		{"no extensions", "none", "", "", []string{"MAIL FROM:<" + from + ">"}},
		{"in the clear", "none", small, "news", []string{"AUTH PLAIN AG5ld3MAc2VjcmV0",
			"MAIL FROM:<" + from + "> BODY=8BITMIME"}},
		{"starttls", "starttls", small, "news", []string{"STARTTLS", "AUTH PLAIN AG5ld3MAc2VjcmV0",
			"MAIL FROM:<" + from + "> BODY=8BITMIME"}},
		{"tls", "tls", small, "news", []string{"AUTH PLAIN AG5ld3MAc2VjcmV0",
			"MAIL FROM:<" + from + "> BODY=8BITMIME"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := &terse{mode: tt.mode, offers: tt.offers}
			s := server.listen(t, tt.user)
			for range 2 { // the second mail uses the same connection
				if reply, err := s.Send(t.Context(), from, []string{to}, []byte(mail)); err != nil || reply != "" {
					t.Fatalf("got %q %v", reply, err)
				}
			}
			want := append(tt.want, tt.want[len(tt.want)-1])
			if got := server.told("STARTTLS", "AUTH", "MAIL"); !slices.Equal(got, want) || server.mails != 2 {
				t.Errorf("%d mails by %q, want 2 by %q", server.mails, got, want)
			}
			if err := s.Check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHello: EHLO has the configured name, also after STARTTLS, else the host name.
func TestHello(t *testing.T) {
	leakFree(t)
	for _, name := range []string{"mail.example.com", ""} {
		server := &terse{mode: "starttls"}
		s := server.listen(t, "")
		s.server.Hello = name
		must.OK(t, post(t.Context(), s))
		want := "EHLO " + cmp.Or(name, hostName())
		if told := server.told("EHLO"); !slices.Equal(told, []string{want, want}) {
			t.Errorf("told %q, want %s", told, want)
		}
	}
}

// TestBareRefusal: a refusal without text keeps its code, also after lines with text.
func TestBareRefusal(t *testing.T) {
	leakFree(t)
	for answer, want := range map[string]string{
		"550\r\n":            "the server refuses the sender: 550",
		"550-no\r\n550\r\n":  "the server refuses the sender: 550 no",
		"451\r\n":            "the server refuses the sender: 451",
		"451-\r\n451 busy\n": "the server refuses the sender: 451 \nbusy",
	} {
		s := open(t, plain(rawtest.Serve(t, func(c net.Conn) {
			_, _ = io.WriteString(c, smtptest.Greeting)
			smtptest.Polite(c, bufio.NewReader(c), "MAIL")
			_, _ = io.WriteString(c, answer)
		})))
		err := post(t.Context(), s)
		if _, code := end(err); code != "smtp_"+answer[:3] || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: got %q %v, want %q", answer, code, err, want)
		}
	}
}

// TestPasswordOverTLS: a server on another machine gets the password only over TLS.
func TestPasswordOverTLS(t *testing.T) {
	leakFree(t)
	for _, mode := range []string{"starttls", "tls", "none"} {
		for _, how := range []string{"PLAIN", "LOGIN"} {
			server := &terse{mode: mode, offers: "250-raw.test\r\n250-AUTH " + how + "\r\n"}
			s := server.listen(t, "news")
			s.host = "mail.example.com" // not a loopback address; the certificate stays valid
			if mode == "none" {
				s.server.TLS = "" // Validate refuses this config
			}
			_, code := end(s.Check(t.Context()))
			if told := server.told("AUTH"); (code == "auth") != (mode == "none") || (len(told) == 0) != (mode == "none") {
				t.Errorf("%s, %s: %q after %q", mode, how, code, told)
			}
		}
	}
}

// TestInjectedBeforeTLS: the client ignores extensions that arrive before TLS, together with the answer to STARTTLS.
func TestInjectedBeforeTLS(t *testing.T) {
	leakFree(t)
	server := &terse{mode: "starttls", offers: "250-raw.test\r\n250-AUTH PLAIN\r\n",
		tail: "250-raw.test\r\n250 AUTH LOGIN\r\n25"}
	err := post(t.Context(), server.listen(t, "news"))
	f, code := end(err)
	if told := server.told("AUTH"); len(told) > 1 || len(told) == 1 && !strings.HasPrefix(told[0], "AUTH PLAIN ") {
		t.Errorf("told %q", told)
	}
	if f != sent && (f != failure.Again || code != "tls") { // the handshake may have read the injected bytes
		t.Errorf("got %v %q %v", f, code, err)
	}
}

// TestReplies: replies keep their length, in pieces of any size.
func TestReplies(t *testing.T) {
	for _, tt := range []struct{ command, in, want string }{
		{"", "250\r\n", "250 \n"},
		{"", "250-\r\n250-one\r\n250\r\n354\r\n", "250-\r\n250-one\r\n250 \n354 \n"},
		{"", "250 \r\n250 fine\r\n250-2.0.0\r\n", "250 \r\n250 fine\r\n250-2.0.0\r\n"},
		{"", "25\r\n\r\n250\n2500\r\nok\r\n", "25\r\n\r\n250\n2500\r\nok\r\n"},
		{"MAIL FROM:<a@b.example>\r\n", "250 auth plain\r\n", "250 auth plain\r\n"},
		{"EHLO me.example\r\n", "250-a.example\r\n250-auth plain\r\n250 size 10\r\n",
			"250-A.EXAMPLE\r\n250-AUTH PLAIN\r\n250 SIZE 10\r\n"},
		{"EHLO me.example\r\n", "550-not\r\n550 you\r\n", "550-not\r\n550 you\r\n"},
	} {
		for _, wrap := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader,
		} {
			r := &replies{Conn: scripted{Reader: wrap(strings.NewReader(tt.in))}}
			_, _ = r.Write([]byte(tt.command))
			if got, err := io.ReadAll(r); string(got) != tt.want || err != nil {
				t.Errorf("%q: got %q %v, want %q", tt.in, got, err, tt.want)
			}
		}
	}
}

// scripted is a connection that returns a given text.
type scripted struct {
	net.Conn
	io.Reader
}

func (s scripted) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s scripted) Write(p []byte) (int, error) { return len(p), nil }
