package remote

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// TestStreamOfHints: a stream begins with the hint for all kinds, because hints may have been missed before it. Its
// error names why it broke; that the server ended it is none.
func TestStreamOfHints(t *testing.T) {
	r := newRig(t, everything)
	for _, c := range []struct {
		body io.Reader
		want error
	}{
		{strings.NewReader("\nk\n"), nil},
		{io.MultiReader(strings.NewReader("\nk\n"), iotest.ErrReader(io.ErrUnexpectedEOF)), io.ErrUnexpectedEOF},
		{strings.NewReader("\nk\n" + strings.Repeat("k", bufio.MaxScanTokenSize+1)), bufio.ErrTooLong},
	} {
		r.http.client.Transport = tripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(c.body)}, nil
		})
		heard := make(chan string, 9)
		if err := r.http.hear(t.Context(), heard); !errors.Is(err, c.want) {
			t.Errorf("the stream ended with %v, want %v", err, c.want)
		}
		if len(heard) != 2 || <-heard != "" || <-heard != "k" {
			t.Errorf("%v: %d kinds are left of those that were heard", c.want, len(heard))
		}
	}
}
