package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// apiError is a refusal of the API.
type apiError answer.Problem

func (e *apiError) Error() string { return e.Detail }

// outOfScope reports whether the API refused a request because of what the user's token may do.
func outOfScope(err error) bool { return err != nil && problemOf(err).Code == "scope" }

// ask sends a request to the API, with the token of the user.
func (v *view) ask(method, at string, q url.Values, body any) (*answered, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	r, err := http.NewRequestWithContext(v.Context(), method, "/api/v1"+at, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Host, r.RemoteAddr, r.RequestURI = v.Host, v.RemoteAddr, "/api/v1"+at
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if v.token != "" {
		r.Header.Set("Authorization", "Bearer "+v.token)
	}
	w := &answered{header: http.Header{}, status: http.StatusOK}
	v.site.API.ServeHTTP(w, r)
	if w.status/100 == 2 {
		return w, nil
	}
	if w.status == http.StatusUnauthorized { // the token was taken out of the config
		v.site.leave(v.Request)
	}
	problem := apiError{Status: w.status, Title: http.StatusText(w.status)}
	if err := json.Unmarshal(w.text.Bytes(), &problem); err != nil {
		return nil, fmt.Errorf("the API answers with status %d: %w", w.status, err)
	}
	return nil, &problem
}

// answered is an answer of the API, as a whole in memory: the API bounds its lists and texts.
type answered struct {
	header http.Header
	status int
	text   bytes.Buffer
}

func (a *answered) Header() http.Header         { return a.header }
func (a *answered) WriteHeader(status int)      { a.status = status }
func (a *answered) Write(b []byte) (int, error) { return a.text.Write(b) }

// Flush tells the API that the answer has arrived. The API hands back the items of a claim whose answer is lost.
func (a *answered) Flush() {}

// get reads an answer of the API.
func get[T any](v *view, at string, q url.Values) (T, error) {
	return send[T](v, http.MethodGet, at, q, nil)
}

// send sends a request to the API and reads its answer.
func send[T any](v *view, method, at string, q url.Values, body any) (out T, err error) {
	a, err := v.ask(method, at, q, body)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(a.text.Bytes(), &out)
}

// Bounds of readParts.
const (
	mostParts = 3 // of 1,000 entries each
	partsTime = 150 * time.Millisecond
)

// readParts reads a list from its beginning, for a chart: up to mostParts parts, and it begins none after partsTime. It
// reports whether the list has more.
func readParts[T any](v *view, at string, q url.Values) (all []T, more bool, err error) {
	q.Set("limit", "1000")
	began := time.Now()
	for i := range mostParts {
		if i > 0 && time.Since(began) > partsTime {
			break
		}
		part, err := get[answer.List[T]](v, at, q)
		if err != nil {
			return nil, false, err
		}
		all = append(all, part.Items...)
		if part.Next == nil {
			return all, false, nil
		}
		q.Set("cursor", *part.Next)
	}
	return all, true, nil
}
