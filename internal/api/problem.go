package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// code has the HTTP status and the title of an error code.
type code struct {
	status int
	title  string
}

// codes are all error codes. Programs rely on them, so no code is ever renamed.
var codes = map[string]code{
	"bad_request":     {http.StatusBadRequest, "A parameter or the body cannot be read"},
	"bad_filter":      {http.StatusBadRequest, "The filter is wrong; column and length are the place"},
	"bad_cursor":      {http.StatusBadRequest, "The cursor is of another list, or was changed"},
	"unauthorized":    {http.StatusUnauthorized, "There is no token, or it is not known"},
	"environment":     {http.StatusForbidden, "The client is of another environment"},
	"cross_site":      {http.StatusForbidden, "The request comes from a page of another site"},
	"scope":           {http.StatusForbidden, "The token may not do this"},
	"not_found":       {http.StatusNotFound, "There is no such item, kind or path"},
	"bad_method":      {http.StatusMethodNotAllowed, "This path does not have this method"},
	"conflict":        {http.StatusConflict, "It conflicts with the present state of the ledger"},
	"lease_lost":      {http.StatusConflict, "Another agent holds or has ended the item"},
	"changed":         {http.StatusPreconditionFailed, "It was changed since it was read"},
	"too_many_rows":   {http.StatusRequestEntityTooLarge, "The list has too many entries, or none"},
	"too_large":       {http.StatusRequestEntityTooLarge, "The body is too large"},
	"bad_media_type":  {http.StatusUnsupportedMediaType, "The type of the body is not accepted"},
	"wrong_host":      {http.StatusMisdirectedRequest, "The server is not known by this name"},
	"invalid":         {http.StatusUnprocessableEntity, "A value breaks a rule of the ledger"},
	"no_condition":    {http.StatusPreconditionRequired, "The header If-Match is missing"},
	"too_many":        {http.StatusTooManyRequests, "Too many requests at once"},
	"too_many_logins": {http.StatusTooManyRequests, "Too many wrong tokens from this address"},
	"error":           {http.StatusInternalServerError, "An error within the server; its log has more"},
	"too_slow":        {http.StatusServiceUnavailable, "The answer took too long"},
	"unavailable":     {http.StatusServiceUnavailable, "The ledger cannot be reached now"},
}

// everywhere are the codes that every route may answer.
var everywhere = []string{"bad_request", "cross_site", "environment", "wrong_host", "too_large", "error", "too_slow",
	"unavailable"}

// tokenCodes are the further codes of every route that needs a token.
var tokenCodes = []string{"unauthorized", "scope", "too_many_logins", "too_many"}

// codesURL is the URL of the document that describes the codes.
const codesURL = "https://github.com/ledgerd/ledgerd/blob/main/docs/api.md#"

// fail answers with an error.
func (c *Call) fail(err error) {
	p, retry := problemOf(err)
	gone := c.Context().Err() != nil && errors.Is(err, context.Canceled) // the caller no longer waits
	if p.Status >= http.StatusInternalServerError && !gone {
		c.api.Log.Error("the API answers with an error", "method", c.Method, "path", c.URL.Path, "code", p.Code,
			"error", redact.Text(err.Error()))
	}
	h := c.w.Header()
	if retry > 0 {
		h.Set("Retry-After", strconv.Itoa(retry))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	text, _ := report.Marshal(p) // texts and numbers are always JSON
	c.send(p.Status, mediaProblem, text)
}

// problemOf returns the answer for an error, and the number of seconds after which to try again; 0 means not at all.
// Only the log has the cause of an error within the server.
func problemOf(err error) (p answer.Problem, retry int) {
	if bad, ok := errors.AsType[*filter.Error](err); ok {
		p = problem("bad_filter", bad.Reason, "terms: "+filter.Terms)
		p.Column, p.Length, p.Field = bad.Column, bad.Length, "where"
		if near := settings.Suggest(bad.Word, bad.Known); near != "" {
			p.Hint = "did you mean " + near + "?"
		}
		return p, 0
	}
	if r, ok := errors.AsType[*access.Refusal](err); ok {
		return problem(r.Code, r.Message, r.Hint), int(r.Retry.Seconds())
	}
	if big, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem("too_large", "the body has more than "+report.Count(big.Limit)+" bytes", "send less at a time"), 0
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return problem("too_slow", "no answer in time", "a narrower filter looks at fewer items"), 1
	}
	f := failure.Explain(err)
	c, known := codes[f.Code]
	switch {
	case errors.Is(err, ledger.ErrUnavailable):
		return problem("unavailable", "the ledger cannot be reached now", "try again"), 1
	case !known || c.status >= http.StatusInternalServerError:
		return problem("error", "the server cannot answer this", "the log of the server has more"), 0
	case f.Code == "too_many":
		return problem(f.Code, f.Message, f.Hint), 1
	}
	p = problem(f.Code, f.Message, f.Hint)
	p.Field = f.Field
	if in, ok := errors.AsType[*inputError](err); ok {
		p.Field = in.field
	}
	if bad, ok := errors.AsType[*ledger.InvalidError](err); ok {
		p.Field = bad.Field
	}
	return p, 0
}

// problem is the answer with the code of this name.
func problem(name, detail, hint string) answer.Problem {
	c := codes[name]
	return answer.Problem{Type: codesURL + name, Title: c.title, Status: c.status, Code: name,
		Detail: redact.Text(detail), Hint: redact.Text(hint)}
}
