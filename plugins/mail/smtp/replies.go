package smtp

import (
	"bytes"
	"net"
)

// replies is a connection whose replies are changed to what the client understands. The client wants text
// behind each code, and the extensions in capitals. RFC 5321 allows the bare code (4.2) and small
// letters (2.4). No reply gets longer or is held back, so what is read here was sent just now.
type replies struct {
	net.Conn
	hello bool // what is read answers EHLO
	at    int  // bytes of the line before the next one
	code  [3]byte
}

func (r *replies) Write(p []byte) (int, error) {
	r.hello = bytes.HasPrefix(p, []byte("EHLO "))
	return r.Conn.Write(p)
}

func (r *replies) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	for i, b := range p[:n] {
		switch {
		case b == '\n':
			r.at = 0
			continue
		case r.at < len(r.code):
			r.code[r.at] = b
		case r.at == len(r.code) && b == '\r':
			p[i] = ' ' // a line may end in a bare line feed
		case r.hello && string(r.code[:]) == "250" && 'a' <= b && b <= 'z':
			p[i] -= 'a' - 'A'
		}
		r.at++
	}
	return n, err
}
