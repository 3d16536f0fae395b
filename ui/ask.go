package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
)

// apiError is a refusal of the API.
type apiError answer.Problem

func (e *apiError) Error() string { return e.Detail }

// outOfScope reports whether the API refused a request because the user's token has no right to it.
func outOfScope(err error) bool { return err != nil && problemOf(err).Code == "scope" }

// ask sends a request to the API, with the token of the user.
func (v *view) ask(method, at string, q url.Values, body any) (*api.Recorder, error) {
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
	a := api.NewRecorder() // the API bounds its lists and texts
	v.site.API.ServeHTTP(a, r)
	if a.Status/100 == 2 {
		return a, nil
	}
	if a.Status == http.StatusUnauthorized { // the token was removed from the config
		v.site.leave(v.Request)
	}
	problem := apiError{Status: a.Status, Title: http.StatusText(a.Status)}
	if err := json.Unmarshal(a.Bytes(), &problem); err != nil {
		return nil, fmt.Errorf("the API answers with status %d: %w", a.Status, err)
	}
	return nil, &problem
}

// get reads an answer of the API.
func get[T any](v *view, at string, q url.Values) (T, error) {
	return send[T](v, http.MethodGet, at, q, nil)
}

// notCounted is the code of the problem that a page has until the figures of the ledger are counted. Then the page is
// loaded again each second.
const notCounted = "counting"

// stats reads the figures of the ledger.
func (v *view) stats() (answer.Stats, error) {
	s, err := get[answer.Stats](v, "/stats", url.Values{"wait": {"false"}})
	if p, ok := errors.AsType[*apiError](err); ok && p.Code == "too_slow" {
		err = &apiError{Status: p.Status, Code: notCounted, Title: "The open items are being counted",
			Hint: "This page loads again by itself."}
	}
	return s, err
}

// send sends a request to the API and reads its answer.
func send[T any](v *view, method, at string, q url.Values, body any) (out T, err error) {
	a, err := v.ask(method, at, q, body)
	if err != nil {
		return out, err
	}
	err = json.Unmarshal(a.Bytes(), &out)
	return out, err
}

// Bounds of readParts.
const (
	maxParts  = 3 // of 1,000 entries each
	partsTime = 150 * time.Millisecond
)

// readParts reads a list from its beginning, for a chart: up to maxParts parts, and it begins none after partsTime. It
// reports whether the list has more.
func readParts[T any](v *view, at string, q url.Values) (all []T, more bool, err error) {
	q.Set("limit", "1000")
	began := time.Now()
	for i := range maxParts {
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
