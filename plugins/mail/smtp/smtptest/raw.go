package smtptest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Raw is a server that does with each connection what talk says; talk's connection is closed
// when it returns and when the test ends. It returns host:port.
func Raw(t testing.TB, talk func(net.Conn)) string {
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

// Polite answers what every server answers, until a line begins with until, which it returns; ""
// if the connection ended before.
func Polite(conn net.Conn, r *bufio.Reader, until string) string {
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

// ToEnd reads a mail to its end and says whether it got there.
func ToEnd(r *bufio.Reader) bool {
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

// Greeting is how a server begins.
const Greeting = "220 raw.test\r\n"

// UntilData talks until the mail begins.
func UntilData(conn net.Conn) *bufio.Reader {
	r := bufio.NewReader(conn)
	_, _ = io.WriteString(conn, Greeting)
	Polite(conn, r, "DATA")
	return r
}

// WholeMail talks until the mail has ended.
func WholeMail(conn net.Conn) *bufio.Reader {
	r := UntilData(conn)
	_, _ = io.WriteString(conn, "354 go on\r\n")
	ToEnd(r)
	return r
}
