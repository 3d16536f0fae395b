package smtp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	gosmtp "github.com/emersion/go-smtp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/rawtest"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp/smtptest"
)

// TestBreaks: a server breaks off within a step, resets, floods or sends nonsense. TestEveryStep has the other breaks.
func TestBreaks(t *testing.T) {
	leakFree(t)
	large := mail + strings.Repeat("0123456789abcdef\r\n", 1<<20)
	stall := func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	after := func(answer string) func(net.Conn) {
		return func(conn net.Conn) {
			smtptest.WholeMail(conn)
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
		mail string
		want failure.Fate
		code string
	}{
		{"is no SMTP server", func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n") }, mail, failure.Again, "connect"},
		{"floods at EHLO", func(c net.Conn) { _, _ = io.WriteString(c, smtptest.Greeting); flood(c) }, mail, failure.Again,
			"connect"},
		{"takes the mail before it was told", func(c net.Conn) {
			smtptest.UntilData(c)
			_, _ = io.WriteString(c, "354 go on\r\n250 taken\r\n")
			stall(c)
		}, mail, failure.Again, "broken"},
		{"leaves with a word before the end", func(c net.Conn) {
			r := smtptest.UntilData(c)
			_, _ = io.WriteString(c, "354 go on\r\n421 leaving\r\n")
			if smtptest.ToEnd(r) {
				t.Error("a mail that was given up was ended")
			}
		}, mail, failure.Again, "smtp_421"},
		{"closes in the middle", func(c net.Conn) {
			r := smtptest.UntilData(c)
			_, _ = io.WriteString(c, "354 go on\r\n")
			_, _ = io.CopyN(io.Discard, r, 1<<10)
		}, large, failure.Again, "broken"},
		{"reads no further", func(c net.Conn) {
			smtptest.UntilData(c)
			_, _ = io.WriteString(c, "354 go on\r\n")
			var one [1]byte
			_, _ = c.Read(one[:])
			<-hold
		}, large, failure.Again, "timeout"},
		{"resets after the end", func(c net.Conn) { smtptest.WholeMail(c); _ = c.(*net.TCPConn).SetLinger(0) }, mail,
			failure.Doubt, "no_answer"},
		{"closes in the middle of its answer", after("25"), mail, failure.Doubt, "no_answer"},
		{"closes in the middle of a longer answer", after("250-taken\r\n250"), mail, failure.Doubt, "no_answer"},
		{"floods after the end", func(c net.Conn) { smtptest.WholeMail(c); flood(c) }, mail, failure.Doubt, "no_answer"},
		{"answers nonsense", after("ok\r\n"), mail, failure.Doubt, "no_answer"},
		{"answers 354", after("354 go on\r\n"), mail, failure.Doubt, "no_answer"},
		{"answers 252", after("252 will try\r\n"), mail, sent, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := plain(rawtest.Serve(t, tt.talk))
			switch tt.code {
			case "timeout":
				server.Timeout = short
			case "no_answer":
				server.ReplyTimeout = short
			}
			_, err := open(t, server).Send(t.Context(), from, []string{to}, []byte(tt.mail))
			if tt.name == "reads no further" {
				close(hold)
			}
			if f, code := end(err); f != tt.want || code != tt.code {
				t.Errorf("got %v %q, want %v %q: %v", f, code, tt.want, tt.code, err)
			}
		})
	}
}

// TestDotDoesNotLeave: all of the mail has been sent except the final dot, and the dot cannot be sent. The server does
// not have the mail, and the client reports so.
func TestDotDoesNotLeave(t *testing.T) {
	leakFree(t)
	ended := make(chan bool, 1)
	s := open(t, plain(rawtest.Serve(t, func(c net.Conn) {
		r := smtptest.UntilData(c)
		_, _ = io.WriteString(c, "354 go on\r\n")
		ended <- smtptest.ToEnd(r)
	})))
	c, err := s.connect(t.Context())
	must.OK(t, err)
	defer c.wire.Close()
	body, err := c.envelope(from, []string{to})
	if err == nil {
		err = c.sendContent(body, []byte(mail))
	}
	if err == nil {
		err = c.wire.Conn.(*net.TCPConn).CloseWrite()
	}
	must.OK(t, err)
	_, err = c.sendDot(body)
	if f, code := end(err); f != failure.Again || code != "broken" || <-ended {
		t.Errorf("got %v %q: %v", f, code, err)
	}
}

// TestTurnedAway: the server closes its side while it receives the mail, and the last bytes are still sent. The client
// notices it before it sends the final dot.
func TestTurnedAway(t *testing.T) {
	leakFree(t)
	told := make(chan struct{})
	s := open(t, plain(rawtest.Serve(t, func(c net.Conn) {
		smtptest.UntilData(c)
		_, _ = io.WriteString(c, "354 go on\r\n")
		<-told
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})))
	c, err := s.connect(t.Context())
	must.OK(t, err)
	defer c.wire.Close()
	body, err := c.envelope(from, []string{to})
	must.OK(t, err)
	close(told)
	for late := time.Now().Add(time.Minute); c.wire.silent(); runtime.Gosched() {
		if time.Now().After(late) {
			t.Fatal("the server's end did not arrive")
		}
	}
	if f, code := end(c.sendContent(body, []byte(mail))); f != failure.Again || code != "broken" {
		t.Errorf("got %v %q", f, code)
	}
}

// TestToldToEnd: an item that is cancelled before the final dot was not sent. After the dot, the client still waits
// for the answer.
func TestToldToEnd(t *testing.T) {
	leakFree(t)
	for _, tt := range []struct {
		name   string
		at     func(c net.Conn) // talks until the item is cancelled
		answer string
		want   failure.Fate
	}{
		{"before the mail", func(c net.Conn) { smtptest.UntilData(c) }, "", failure.Again},
		{"after the mail", func(c net.Conn) { smtptest.WholeMail(c) }, "250 taken\r\n", sent},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			there, told := make(chan struct{}), make(chan struct{})
			s := open(t, plain(rawtest.Serve(t, func(c net.Conn) {
				tt.at(c)
				close(there)
				<-told
				_, _ = io.WriteString(c, tt.answer)
				_, _ = io.Copy(io.Discard, c)
			})))
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-there
				cancel()
				close(told)
			}()
			if f, _ := end(post(ctx, s)); f != tt.want {
				t.Errorf("got %v, want %v", f, tt.want)
			}
		})
	}
	t.Run("no answer", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		s := open(t, plain(rawtest.Serve(t, func(c net.Conn) {
			smtptest.WholeMail(c)
			cancel()
			_, _ = io.Copy(io.Discard, c)
		})))
		if f, code := end(post(ctx, s)); f != failure.Doubt || code != "no_answer" {
			t.Errorf("got %v %q, want doubt", f, code)
		}
	})
}

// TestKeptConnection: if the server closed a kept connection, the mail goes over a new one.
func TestKeptConnection(t *testing.T) {
	leakFree(t)
	for _, tt := range []struct {
		name string
		next func(c net.Conn, r *bufio.Reader) // called after the first mail of a connection
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
			s := open(t, plain(rawtest.Serve(t, func(c net.Conn) {
				r := smtptest.WholeMail(c)
				mails <- struct{}{}
				_, _ = io.WriteString(c, "250 taken\r\n")
				tt.next(c, r)
			})))
			for range 3 {
				must.OK(t, post(t.Context(), s))
			}
			if len(mails) != 3 {
				t.Errorf("%d mails", len(mails))
			}
		})
	}
}

// TestKeptConnectionSilent: the item ends while the server does not answer on a kept connection. That is no reason for
// a new connection.
func TestKeptConnectionSilent(t *testing.T) {
	leakFree(t)
	ctx, cancel := context.WithCancel(t.Context())
	s := open(t, plain(rawtest.Serve(t, func(c net.Conn) {
		r := smtptest.WholeMail(c)
		_, _ = io.WriteString(c, "250 taken\r\n")
		_, _ = r.ReadString('\n')
		cancel()
		_, _ = io.Copy(io.Discard, r)
	})))
	must.OK(t, post(t.Context(), s))
	if f, code := end(post(ctx, s)); f != failure.Again || code != "broken" {
		t.Errorf("got %v %q", f, code)
	}
}

// TestRefusedThenTaken: after a refusal, the next mail goes over the same connection and needs no login, unless the
// refusal is about the connection or the login.
func TestRefusedThenTaken(t *testing.T) {
	leakFree(t)
	for code, connections := range map[int]int{550: 1, 451: 1, 421: 2, 530: 2} {
		box := smtptest.Mailbox{Login: "news:secret", AtRcpt: func(to string) error {
			if to == "gone@example.com" {
				return smtptest.Answers(code, "no")(to)
			}
			return nil
		}}
		box.Listen(t, nil)
		server := plain(box.Addr)
		server.User, server.Password = "news", "secret"
		s := open(t, server)
		_, err := s.Send(t.Context(), from, []string{to, "gone@example.com"}, []byte(mail))
		if _, got := end(err); got != fmt.Sprintf("smtp_%d", code) {
			t.Errorf("%d: %v", code, err)
		}
		must.OK(t, post(t.Context(), s))
		mails, n := box.Taken(), box.Connections()
		if len(mails) != 1 || !slices.Equal(mails[0].All, []string{to}) || n != connections {
			t.Errorf("%d: %d connections, taken %+v", code, n, mails)
		}
		s.Close()
	}
}

func TestTLS(t *testing.T) {
	leakFree(t)
	cert, ca := smtptest.Certificate(t)
	_, otherCA := smtptest.Certificate(t)
	secure := func(domain string) func(*gosmtp.Server) {
		return func(s *gosmtp.Server) { s.TLSConfig, s.Domain = smtptest.TLS(cert), domain }
	}
	for _, tt := range []struct {
		name, mode, ca string
		server         func(*gosmtp.Server)
		code           string
	}{
		{"starttls", "starttls", ca, secure("box.test"), ""},
		{"tls", "tls", ca, secure(smtptest.Implicit), ""},
		{"starttls of a stranger", "starttls", otherCA, secure("box.test"), "tls"},
		{"tls of a stranger", "tls", otherCA, secure(smtptest.Implicit), "tls"},
		{"starttls not offered", "starttls", ca, nil, "tls"},
		{"opportunistic, offered by a stranger", "opportunistic", otherCA, secure("box.test"), ""},
		{"opportunistic, not offered", "opportunistic", ca, nil, ""},
		{"tls not offered", "tls", ca, nil, "tls"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			box := smtptest.Mailbox{Login: "news:secret"}
			box.Listen(t, tt.server)
			server := plain(box.Addr)
			server.TLS, server.CAFile, server.User, server.Password = tt.mode, tt.ca, "news", "secret"
			err := post(t.Context(), open(t, server))
			_, code := end(err)
			if code != tt.code || (err == nil) != (tt.code == "") {
				t.Errorf("got %q %v, want %q", code, err, tt.code)
			}
			if n := len(box.Taken()); (n == 1) != (tt.code == "") {
				t.Errorf("%d mails were taken", n)
			}
			if encrypted := box.Encrypted(); tt.code == "" && encrypted != (tt.server != nil) {
				t.Errorf("encrypted: %v", encrypted)
			}
		})
	}
}

func TestLogin(t *testing.T) {
	leakFree(t)
	box := smtptest.Mailbox{Login: "news:secret"}
	box.Listen(t, nil)
	for _, tt := range []struct {
		user, password string
		want           failure.Fate
		code           string
	}{
		{"news", "secret", sent, ""},
		{"news", "geheim", failure.Again, "auth"}, // the mail did not cause this failure
		{"", "", failure.Again, "smtp_502"},       // nor this one
	} {
		server := plain(box.Addr)
		server.User, server.Password = tt.user, tt.password
		s := open(t, server)
		err := post(t.Context(), s)
		if f, code := end(err); f != tt.want || code != tt.code || err != nil && tt.password != "" &&
			strings.Contains(err.Error(), tt.password) {
			t.Errorf("%s: got %v %q %v, want %v %q", tt.user, f, code, err, tt.want, tt.code)
		}
		if err := s.Check(t.Context()); (err == nil) != (tt.code != "auth") {
			t.Errorf("%s: check returned %v", tt.user, err)
		}
	}
}
