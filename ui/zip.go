package ui

import (
	"compress/gzip"
	"net/http"
	"strings"
)

// deliver writes a text, compressed for browsers that take it so. Nothing secret of a page can be found out by its
// length: the cookie does not come with requests of other sites, so these get no page.
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
