package mail

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	netmail "net/mail"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/ledgerd/ledgerd/sdk"
)

func TestSend(t *testing.T) {
	leakFree(t)
	var box mailbox
	box.listen(t, nil)
	cfg := open(t, defaults(box.addr))
	var ids []string
	for range 3 {
		out, err := post(t.Context(), cfg, hello("Ann <ann@example.com>"))
		if err != nil || out.Reply == "" || out.Bytes == 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		ids = append(ids, out.MessageID)
	}
	if ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("attempts at one mail have ids %v", ids)
	}
	other, err := post(t.Context(), cfg, hello("bob@example.com"))
	if err != nil || other.MessageID == ids[0] {
		t.Errorf("another mail has the id %s of the first, %v", other.MessageID, err)
	}
	mails := box.taken()
	if len(mails) != 4 || mails[0].to != "ann@example.com" || mails[0].from != "news@example.com" {
		t.Fatalf("%+v", mails)
	}
	if n := box.connections(); n != 1 {
		t.Errorf("%d connections for four mails in a row", n)
	}
	m, err := netmail.ReadMessage(bytes.NewReader(mails[0].content))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"From": `"Example News" <news@example.com>`, "To": `"Ann" <ann@example.com>`, "Subject": "Hello", "Message-Id": "<" + ids[0] + ">",
	} {
		if have := m.Header.Get(name); have != want {
			t.Errorf("%s: %s, want %s", name, have, want)
		}
	}
}

// TestRefused: what a real server says decides, at every step.
func TestRefused(t *testing.T) {
	leakFree(t)
	for _, tt := range []struct {
		step string
		code int
		want fate
	}{
		{"mail", 421, again}, {"mail", 451, again}, {"mail", 550, never}, {"mail", 530, never},
		{"rcpt", 450, again}, {"rcpt", 452, again}, {"rcpt", 550, never}, {"rcpt", 553, never},
		{"data", 421, again}, {"data", 451, again}, {"data", 552, never}, {"data", 554, never},
	} {
		box := map[string]*mailbox{
			"mail": {atMail: says(tt.code, "no")}, "rcpt": {atRcpt: says(tt.code, "no")}, "data": {atData: says(tt.code, "no")},
		}[tt.step]
		box.listen(t, nil)
		cfg := open(t, defaults(box.addr))
		_, err := post(t.Context(), cfg, hello("ann@example.com"))
		if f, code := end(err); f != tt.want || code != fmt.Sprint("smtp_", tt.code) {
			t.Errorf("%d at %s: %v %s %v", tt.code, tt.step, f, code, err)
		}
		if n := len(box.taken()); n > 0 {
			t.Errorf("%d at %s: %d mails were taken", tt.code, tt.step, n)
		}
	}
}

const greeting = "220 raw.test\r\n"

// untilData talks until the mail begins.
func untilData(conn net.Conn) *bufio.Reader {
	r := bufio.NewReader(conn)
	_, _ = io.WriteString(conn, greeting)
	polite(conn, r, "DATA")
	return r
}

// wholeMail talks until the mail has ended.
func wholeMail(conn net.Conn) *bufio.Reader {
	r := untilData(conn)
	_, _ = io.WriteString(conn, "354 go on\r\n")
	toEnd(r)
	return r
}

// TestBreaks: a server that breaks off, stalls or talks nonsense, at every moment.
func TestBreaks(t *testing.T) {
	leakFree(t)
	large := In{To: "ann@example.com", Subject: "Hello", Text: strings.Repeat("0123456789abcdef\n", 1<<20)}
	stall := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	after := func(answer string) func(net.Conn) {
		return func(conn net.Conn) {
			wholeMail(conn)
			_, _ = io.WriteString(conn, answer)
		}
	}
	flood := func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, "250-"+strings.Repeat("x", 4<<10)+"\r\n"); err != nil {
				return
			}
		}
	}
	hold := make(chan struct{})
	for _, tt := range []struct {
		name string
		talk func(net.Conn)
		in   In
		want fate
		code string
	}{
		{"closes at once", func(net.Conn) {}, In{}, again, "connect"},
		{"stalls at once", stall, In{}, again, "timeout"},
		{"greets with 554", func(c net.Conn) { _, _ = io.WriteString(c, "554 not here\r\n") }, In{}, again, "connect"},
		{"is no SMTP server", func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n") }, In{}, again, "connect"},
		{"closes after the greeting", func(c net.Conn) { _, _ = io.WriteString(c, greeting) }, In{}, again, "connect"},
		{"floods at EHLO", func(c net.Conn) { _, _ = io.WriteString(c, greeting); flood(c) }, In{}, again, "connect"},
		{"closes at RCPT", func(c net.Conn) {
			_, _ = io.WriteString(c, greeting)
			polite(c, bufio.NewReader(c), "RCPT")
		}, In{}, again, "broken"},
		{"closes at DATA", func(c net.Conn) { untilData(c) }, In{}, again, "broken"},
		{"stalls at DATA", func(c net.Conn) { untilData(c); stall(c) }, In{}, again, "timeout"},
		{"takes the mail before it was told", func(c net.Conn) {
			untilData(c)
			_, _ = io.WriteString(c, "354 go on\r\n250 taken\r\n")
			stall(c)
		}, In{}, again, "broken"},
		{"leaves with a word before the end", func(c net.Conn) {
			r := untilData(c)
			_, _ = io.WriteString(c, "354 go on\r\n421 leaving\r\n")
			if toEnd(r) {
				t.Error("a mail that was given up was ended")
			}
		}, In{}, again, "smtp_421"},
		{"closes in the middle", func(c net.Conn) {
			r := untilData(c)
			_, _ = io.WriteString(c, "354 go on\r\n")
			_, _ = io.CopyN(io.Discard, r, 1<<10)
		}, large, again, "broken"},
		{"reads no further", func(c net.Conn) {
			untilData(c)
			_, _ = io.WriteString(c, "354 go on\r\n")
			var one [1]byte
			_, _ = c.Read(one[:])
			<-hold
		}, large, again, "timeout"},
		{"closes after the end", after(""), In{}, doubt, "no_answer"},
		{"resets after the end", func(c net.Conn) { wholeMail(c); _ = c.(*net.TCPConn).SetLinger(0) }, In{}, doubt, "no_answer"},
		{"closes in the middle of its answer", after("25"), In{}, doubt, "no_answer"},
		{"closes in the middle of a longer answer", after("250-taken\r\n250"), In{}, doubt, "no_answer"},
		{"stalls after the end", func(c net.Conn) { wholeMail(c); stall(c) }, In{}, doubt, "no_answer"},
		{"floods after the end", func(c net.Conn) { wholeMail(c); flood(c) }, In{}, doubt, "no_answer"},
		{"answers nonsense", after("ok\r\n"), In{}, doubt, "no_answer"},
		{"answers 354", after("354 go on\r\n"), In{}, doubt, "no_answer"},
		{"answers 451", after("451 later\r\n"), In{}, again, "smtp_451"},
		{"answers 554", after("554 spam\r\n"), In{}, never, "smtp_554"},
		{"answers 252", after("252 will try\r\n"), In{}, sent, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := defaults(raw(t, tt.talk))
			cfg, in := open(t, c), tt.in
			if in.To == "" {
				in = hello("ann@example.com")
			}
			switch tt.code {
			case "timeout":
				cfg.Timeout = short
			case "no_answer":
				cfg.ReplyTimeout = short
			}
			_, err := post(t.Context(), cfg, in)
			if tt.name == "reads no further" {
				close(hold)
			}
			if f, code := end(err); f != tt.want || code != tt.code {
				t.Errorf("got %v %q, want %v %q: %v", f, code, tt.want, tt.code, err)
			}
		})
	}
}

// TestDotDoesNotLeave: the mail has left but for the line that ends it, and that line cannot leave. The
// server has no mail, and that is known.
func TestDotDoesNotLeave(t *testing.T) {
	leakFree(t)
	ended := make(chan bool, 1)
	cfg := open(t, defaults(raw(t, func(c net.Conn) {
		r := untilData(c)
		_, _ = io.WriteString(c, "354 go on\r\n")
		ended <- toEnd(r)
	})))
	m, err := compose(t.Context(), cfg, hello("ann@example.com"), "mail//x/1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cfg.sender.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.wire.Close()
	body, err := c.envelope(m)
	if err == nil {
		err = c.tell(body, m.content)
	}
	if err == nil {
		err = c.wire.Conn.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.end(body)
	if f, code := end(err); f != again || code != "broken" || <-ended {
		t.Errorf("got %v %q: %v", f, code, err)
	}
}

// TestTurnedAway: the server has closed the connection while it was told the mail, and what it was told
// last has left all the same, into nothing. That is noticed before the mail is ended.
func TestTurnedAway(t *testing.T) {
	leakFree(t)
	told := make(chan struct{})
	cfg := open(t, defaults(raw(t, func(c net.Conn) {
		untilData(c)
		_, _ = io.WriteString(c, "354 go on\r\n")
		<-told
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})))
	m, err := compose(t.Context(), cfg, hello("ann@example.com"), "mail//x/1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cfg.sender.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.wire.Close()
	body, err := c.envelope(m)
	if err != nil {
		t.Fatal(err)
	}
	close(told)
	for late := time.Now().Add(time.Minute); c.wire.silent(); runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal("the server's end did not arrive")
		}
	}
	if f, code := end(c.tell(body, m.content)); f != again || code != "broken" {
		t.Errorf("got %v %q", f, code)
	}
}

// TestToldToEnd: an item that is to end before its mail has was not sent, and says why; when the
// mail has ended its answer is still waited for.
func TestToldToEnd(t *testing.T) {
	leakFree(t)
	for _, tt := range []struct {
		name   string
		at     func(c net.Conn) // talks until the item is to end
		answer string
		sent   bool
	}{
		{"before the mail", func(c net.Conn) { untilData(c) }, "", false},
		{"after the mail", func(c net.Conn) { wholeMail(c) }, "250 taken\r\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			there, told := make(chan struct{}), make(chan struct{})
			cfg := open(t, defaults(raw(t, func(c net.Conn) {
				tt.at(c)
				close(there)
				<-told
				_, _ = io.WriteString(c, tt.answer)
				_, _ = io.Copy(io.Discard, c)
			})))
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-there
				cancel(sdk.ErrLeaseLost)
				close(told)
			}()
			_, err := post(ctx, cfg, hello("ann@example.com"))
			if tt.sent && err != nil || !tt.sent && !errors.Is(err, sdk.ErrLeaseLost) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cfg := open(t, defaults(raw(t, func(c net.Conn) {
			wholeMail(c)
			cancel(sdk.ErrStopping)
			_, _ = io.Copy(io.Discard, c)
		})))
		if f, code := end(errOf(post(ctx, cfg, hello("ann@example.com")))); f != doubt || code != "no_answer" {
			t.Errorf("got %v %q, want doubt", f, code)
		}
	})
}

func errOf(_ Out, err error) error { return err }

// TestKeptConnection: a connection that the server has given up meanwhile costs nothing.
func TestKeptConnection(t *testing.T) {
	leakFree(t)
	for _, tt := range []struct {
		name string
		next func(c net.Conn, r *bufio.Reader) // after the first mail of a connection
	}{
		{"closed", func(net.Conn, *bufio.Reader) {}},
		{"closed with a word", func(c net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(c, "421 idle\r\n") }},
		{"closed at the next mail", func(c net.Conn, r *bufio.Reader) { _, _ = r.ReadString('\n') }},
		{"refused at the next mail", func(c net.Conn, r *bufio.Reader) {
			_, _ = r.ReadString('\n')
			_, _ = io.WriteString(c, "421 enough\r\n")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mails := make(chan struct{}, 10)
			cfg := open(t, defaults(raw(t, func(c net.Conn) {
				r := wholeMail(c)
				mails <- struct{}{}
				_, _ = io.WriteString(c, "250 taken\r\n")
				tt.next(c, r)
			})))
			for range 3 {
				if _, err := post(t.Context(), cfg, hello("ann@example.com")); err != nil {
					t.Fatal(err)
				}
			}
			if len(mails) != 3 {
				t.Errorf("%d mails", len(mails))
			}
		})
	}
}

func TestTLS(t *testing.T) {
	leakFree(t)
	cert, ca := certificate(t)
	_, otherCA := certificate(t)
	secure := func(domain string) func(*smtp.Server) {
		return func(s *smtp.Server) { s.TLSConfig, s.Domain = serverTLS(cert), domain }
	}
	for _, tt := range []struct {
		name, mode, ca string
		server         func(*smtp.Server)
		code           string
	}{
		{"starttls", "starttls", ca, secure("box.test"), ""},
		{"tls", "tls", ca, secure(implicit), ""},
		{"starttls of a stranger", "starttls", otherCA, secure("box.test"), "tls"},
		{"tls of a stranger", "tls", otherCA, secure(implicit), "tls"},
		{"starttls not offered", "starttls", ca, nil, "tls"},
		{"opportunistic, offered by a stranger", "opportunistic", otherCA, secure("box.test"), ""},
		{"opportunistic, not offered", "opportunistic", ca, nil, ""},
		{"tls not offered", "tls", ca, nil, "tls"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			box := mailbox{login: "news:secret"}
			box.listen(t, tt.server)
			c := defaults(box.addr)
			c.TLS, c.CAFile, c.User, c.Password = tt.mode, tt.ca, "news", "secret"
			_, err := post(t.Context(), open(t, c), hello("ann@example.com"))
			_, code := end(err)
			if code != tt.code || (err == nil) != (tt.code == "") {
				t.Errorf("got %q %v, want %q", code, err, tt.code)
			}
			if n := len(box.taken()); (n == 1) != (tt.code == "") {
				t.Errorf("%d mails were taken", n)
			}
			if encrypted := box.encrypted.Load(); tt.code == "" && encrypted != (tt.server != nil) {
				t.Errorf("encrypted: %v", encrypted)
			}
		})
	}
}

func TestLogin(t *testing.T) {
	leakFree(t)
	box := mailbox{login: "news:secret"}
	box.listen(t, nil)
	for _, tt := range []struct {
		user, password string
		want           fate
		code           string
	}{
		{"news", "secret", sent, ""},
		{"news", "geheim", again, "auth"}, // no mail is to blame
		{"", "", never, "smtp_502"},
	} {
		c := defaults(box.addr)
		c.User, c.Password = tt.user, tt.password
		cfg := open(t, c)
		_, err := post(t.Context(), cfg, hello("ann@example.com"))
		if f, code := end(err); f != tt.want || code != tt.code || err != nil && tt.password != "" && strings.Contains(err.Error(), tt.password) {
			t.Errorf("%s: got %v %q %v, want %v %q", tt.user, f, code, err, tt.want, tt.code)
		}
		if err := cfg.Check(t.Context()); (err == nil) != (tt.code != "auth") {
			t.Errorf("%s: check says %v", tt.user, err)
		}
	}
}
