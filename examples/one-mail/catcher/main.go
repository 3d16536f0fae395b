// Command catcher is a mail server to try ledgerd with. It listens on loopback only, passes no mail
// on, and prints a line for every mail that it takes.
//
//	go run ./examples/one-mail/catcher
//	go run ./examples/one-mail/catcher -hang-up    takes each mail, then hangs up without an answer
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/mail"
	"os"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

func main() {
	log.SetFlags(0)
	port := flag.Int("port", 2525, "to listen on; 0 finds a free one")
	hangUp := flag.Bool("hang-up", false, "take each mail, then hang up without an answer")
	flag.Parse()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	c := &catcher{hangUp: *hangUp, out: os.Stdout}
	fmt.Fprintf(c.out, "a mail server on %s\n", listener.Addr())
	s := smtp.NewServer(smtp.BackendFunc(func(conn *smtp.Conn) (smtp.Session, error) {
		return &session{catcher: c, conn: conn}, nil
	}))
	s.Domain = "localhost"
	s.MaxMessageBytes = 10 << 20
	s.ReadTimeout, s.WriteTimeout = time.Minute, time.Minute
	log.Fatal(s.Serve(listener))
}

type catcher struct {
	hangUp bool

	mu    sync.Mutex
	count int
	out   io.Writer
}

// take prints a line for a mail. After that the mail counts as taken.
func (c *catcher) take(to string, m *mail.Message) {
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil {
		subject = m.Header.Get("Subject")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	fmt.Fprintf(c.out, "%d\t%s\t%q\t%s\n", c.count, to, subject, m.Header.Get("Message-ID"))
}

// session is one connection.
type session struct {
	*catcher
	conn *smtp.Conn
	to   string // the last recipient: it is printed
}

func (s *session) Mail(string, *smtp.MailOptions) error { return nil }

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

func (s *session) Data(r io.Reader) error {
	m, err := mail.ReadMessage(r)
	if err != nil {
		return fmt.Errorf("not a mail: %w", err)
	}
	if _, err := io.Copy(io.Discard, m.Body); err != nil {
		return err // the connection broke: the mail is not taken
	}
	s.take(s.to, m)
	if s.hangUp {
		return s.conn.Conn().Close()
	}
	return nil
}

func (s *session) Reset()        {}
func (s *session) Logout() error { return nil }
