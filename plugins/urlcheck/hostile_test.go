package urlcheck

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/rawtest"
)

// drip writes s again and again, a little at a time, until the other side hangs up.
func drip(conn net.Conn, s string) {
	tick := time.Tick(5 * time.Millisecond)
	for range tick {
		if _, err := io.WriteString(conn, s); err != nil {
			return
		}
	}
}

// flood writes s as fast as it can until the other side hangs up.
func flood(conn net.Conn, s string) {
	block := []byte(strings.Repeat(s, 1+32<<10/len(s)))
	for {
		if _, err := conn.Write(block); err != nil {
			return
		}
	}
}

// say writes s and leaves the connection open until the other side hangs up.
func say(conn net.Conn, s string) {
	_, _ = io.WriteString(conn, s)
	_, _ = io.Copy(io.Discard, conn)
}

// refuseHead answers HEAD with 405 and hands GET to get.
func refuseHead(get func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			switch request(conn) {
			case "":
				return
			case http.MethodHead:
				_, _ = io.WriteString(conn, "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
			default:
				get(conn)
				return
			}
		}
	}
}

// afterRequest reads a request first.
func afterRequest(talk func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		if request(conn) != "" {
			talk(conn)
		}
	}
}

// patience is the deadline of requests that end otherwise, at once but on a busy machine.
const patience = 5 * time.Minute

func TestHostileServers(t *testing.T) {
	leakFree(t)
	const deadline = 600 * time.Millisecond
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, _ = zip.Write(make([]byte, 16<<20))
	_ = zip.Close()
	ok := "HTTP/1.1 200 OK\r\n"
	for _, tt := range []struct {
		name  string
		https bool
		talk  func(net.Conn)
		code  string
		note  string
	}{
		{"closes after accept", false, func(net.Conn) {}, "reset", ""},
		{"resets", false, afterRequest(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }), "reset", ""},
		{"never answers", false, afterRequest(func(c net.Conn) { say(c, "") }), "timeout", ""},
		{"drips headers", false, afterRequest(func(c net.Conn) { _, _ = io.WriteString(c, ok+"X: "); drip(c, "y") }),
			"timeout", ""},
		{"header without an end", false, afterRequest(func(c net.Conn) { _, _ = io.WriteString(c, ok+"X: "); flood(c, "y") }),
			"bad_response", ""},
		{"flood of 1xx", false, afterRequest(func(c net.Conn) { flood(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") }),
			"bad_response", ""},
		{"not HTTP", false, func(c net.Conn) { say(c, "SSH-2.0-OpenSSH_9.9\r\n") }, "bad_response", ""},
		{"bad status", false, afterRequest(func(c net.Conn) { say(c, "HTTP/1.1 OK\r\n\r\n") }), "bad_response", ""},
		{"switches protocols", false, afterRequest(func(c net.Conn) {
			say(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		}), "http_101", ""},
		{"body after HEAD", false, afterRequest(func(c net.Conn) { _, _ = io.WriteString(c, ok+"\r\n"); flood(c, "body") }),
			"", ""},
		{"body without an end", false, refuseHead(func(c net.Conn) { _, _ = io.WriteString(c, ok+"\r\n"); flood(c, "body") }),
			"", "up to 1048576 bytes only"},
		{"drips the body", false, refuseHead(func(c net.Conn) { _, _ = io.WriteString(c, ok+"\r\n"); drip(c, "b") }), "",
			"body broke off"},
		{"announces a huge body", false, refuseHead(func(c net.Conn) { say(c, ok+"Content-Length: 9000000000000\r\n\r\n") }),
			"", "9000000000000 bytes not read"},
		{"body breaks off", false, refuseHead(func(c net.Conn) {
			_, _ = io.WriteString(c, ok+"Content-Length: 9\r\n\r\nfour")
		}), "", "broke off after 4 bytes"},
		{"gzip bomb", false, refuseHead(func(c net.Conn) {
			_, _ = io.WriteString(c, ok+"Content-Encoding: gzip\r\nConnection: close\r\n\r\n"+bomb.String())
		}), "", ""},
		{"TLS without an end", true, func(c net.Conn) { say(c, "") }, "timeout", ""},
		{"TLS closes", true, afterHello(func(net.Conn) {}), "reset", ""},
		{"TLS alert", true, afterHello(func(c net.Conn) { say(c, "\x15\x03\x01\x00\x02\x02\x28") }), "tls", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := defaults()
			if cfg.Deadline = patience; tt.code == "timeout" || tt.note == "body broke off" {
				cfg.Deadline = deadline
			}
			c := open(t, cfg)
			url := "http://" + rawtest.Serve(t, tt.talk)
			if tt.https {
				url = strings.Replace(url, "http", "https", 1)
			}
			began := time.Now()
			out, err := c.check(t.Context(), fine(url))
			if took := time.Since(began); took > 5*cfg.Deadline {
				t.Errorf("took %s with a deadline of %s", took, cfg.Deadline)
			}
			if code(err) != tt.code || !strings.Contains(out.Note, tt.note) || tt.note == "" && out.Note != "" {
				t.Errorf("got %q (%v), note %q; want %q with %q", code(err), err, out.Note, tt.code, tt.note)
			}
			if err != nil && len(err.Error()) > 400 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
		})
	}
}

// afterHello reads the beginning of a TLS handshake first.
func afterHello(talk func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, 64)); err == nil {
			talk(conn)
		}
	}
}
