package smtptest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
)

// Polite answers "250 ok" to every line until a line begins with until. It returns that line, or "" if the connection
// ended before.
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

// ToEnd reads a mail up to its final dot and reports whether the dot came.
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

// Greeting is the first line of a server.
const Greeting = "220 raw.test\r\n"

// UntilData talks to the client until DATA.
func UntilData(conn net.Conn) *bufio.Reader {
	r := bufio.NewReader(conn)
	_, _ = io.WriteString(conn, Greeting)
	Polite(conn, r, "DATA")
	return r
}

// WholeMail talks to the client until the final dot.
func WholeMail(conn net.Conn) *bufio.Reader {
	r := UntilData(conn)
	_, _ = io.WriteString(conn, "354 go on\r\n")
	ToEnd(r)
	return r
}
