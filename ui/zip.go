package ui

import (
	"compress/gzip"
	"net/http"
	"strings"
)

// deliver writes a text, compressed if the browser accepts it. The length of a compressed page cannot reveal a secret
// to another site (BREACH): browsers send its requests without the cookie, so they get no page.
func deliver(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.WriteHeader(status)
		_, _ = w.Write(text) // the caller may have gone
		return
	}
	h.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := gzip.NewWriter(w)
	_, _ = z.Write(text)
	_ = z.Close()
}
