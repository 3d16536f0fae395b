package smtp

import (
	"bytes"
	"net"
)

// replies is a connection that changes the server's replies to a form that the client understands. The client expects
// a text after each code, and extensions in capitals. RFC 5321 allows a code without text (4.2) and small letters
// (2.4). Each reply keeps its length. replies has no buffer, so [wire.silent] sees all unread bytes.
type replies struct {
	net.Conn
	hello bool // the bytes read next answer EHLO
	at    int  // bytes of the current line so far
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
			p[i] = ' ' // the blank replaces CR, because a line may end with only LF
		case r.hello && string(r.code[:]) == "250" && 'a' <= b && b <= 'z':
			p[i] -= 'a' - 'A'
		}
		r.at++
	}
	return n, err
}
