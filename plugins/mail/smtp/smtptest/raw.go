package smtptest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
)

// Polite answers what every server answers, until a line begins with until. It returns that line, or "" if the
// connection ended before.
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

// ToEnd reads a mail to its end and reports whether it got there.
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
