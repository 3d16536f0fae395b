package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/version"
)

// Caller makes requests to the HTTP API of a ledger.
type Caller struct {
	Client *http.Client
	At     string // URL of the server, with the prefix that a proxy adds before /api/v1
	Token  string // "": the server needs none
	// Environment is that of this program, "" if it has none; a server of another one refuses it.
	Environment string
	remote      string // address of the agent, for the server within this process
}

const (
	answerMost = 64 << 20                         // bytes of an answer that are read
	answerTime = lending.MaxWait + 15*time.Second // until an answer is read; the server gives up before
)

// refusal is an error that the API answers.
type refusal struct{ answer.Problem }

func (r *refusal) Error() string { return r.Detail }

// Me returns the rights of the caller.
func (c *Caller) Me(ctx context.Context) (me answer.Me, err error) {
	err = c.ask(ctx, http.MethodGet, "/me", nil, nil, &me)
	return me, err
}

// ask makes a request, with a body unless that is nil, and reads the answer. The error is a *refusal if the API answers
// with an error, or if the server cannot be reached.
func (c *Caller) ask(ctx context.Context, method, path string, query url.Values, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	at := c.At + api.Base + path
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, at, text)
	if err != nil {
		return err
	}
	r.RemoteAddr = c.remote
	r.Header.Set("User-Agent", "ledgerd/"+version.String())
	if text != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.Environment != "" {
		r.Header.Set("Ledgerd-Environment", c.Environment)
	}
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	res, err := c.Client.Do(r)
	if err != nil {
		if at, ok := errors.AsType[*url.Error](err); ok {
			err = at.Err // the outer error repeats the URL
		}
		return &refusal{answer.Problem{Code: "unavailable", Detail: fmt.Sprintf("%s does not answer: %v", c.At, err),
			Hint: "nothing was lost; try again"}}
	}
	defer res.Body.Close()
	d := json.NewDecoder(io.LimitReader(res.Body, answerMost))
	d.UseNumber()
	if res.StatusCode != http.StatusOK {
		bad := &refusal{}
		if d.Decode(&bad.Problem) != nil || bad.Code == "" {
			bad.Code, bad.Detail = "no_ledger", fmt.Sprintf("%s answers %s: there is no HTTP API of a ledger", c.At, res.Status)
		}
		bad.Status = cmp.Or(bad.Status, res.StatusCode)
		return bad
	}
	return d.Decode(into)
}

// Within is a transport to a server in this process.
type Within struct{ Handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (w Within) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	a := api.NewRecorder()
	w.Handler.ServeHTTP(a, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: a.Status, Status: fmt.Sprintf("%d %s", a.Status, http.StatusText(a.Status)),
		Header: a.Header(), Request: r, Body: io.NopCloser(a)}, nil
}
