package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
)

// temporary reports whether the same call may succeed later.
func temporary(err error) bool { return errors.Is(err, ledger.ErrUnavailable) }

// temporaryStatus are statuses of a proxy that cannot reach its server, or of a server that is overloaded.
var temporaryStatus = []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	http.StatusTooManyRequests, http.StatusRequestTimeout}

// contentStatus are statuses with which a firewall refuses a request because of its content. Others, such as 404, come
// from a proxy while the server restarts.
var contentStatus = []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotAcceptable}

// Hints of calls without an answer.
const (
	hintAgain = "nothing was lost; run the same command again when the server can be reached"
	hintActed = "it may have taken effect all the same: ledgerd journal lists what was done; look there before you run " +
		"the command again"
	hintClaim = "items may be leased all the same; the same command with the same --agent returns these first"
)

// hinted replaces hintAgain in an error by another hint, unless the request cannot have reached the server.
func hinted(err error, hint string) error {
	e, ok := errors.AsType[*ledger.Error](err)
	op, network := errors.AsType[*net.OpError](err)
	unsent := network && op.Op == "dial"
	if ok && e.Hint == hintAgain && !unsent {
		e.Hint = hint
	}
	return err
}

// noAnswer is the error of a call that got no answer.
func (l *Ledger) noAnswer(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errNoAnswer) {
		return cause // the caller has cancelled the call
	}
	if context.Cause(ctx) != nil {
		err = errNoAnswer
	}
	if at, ok := errors.AsType[*url.Error](err); ok {
		err = at.Err // it repeats the URL
	}
	return &ledger.Error{Kind: ledger.ErrUnavailable, Message: fmt.Sprintf("%s: %v", l.Remote, err),
		Hint: hintAgain, Err: err}
}

// notOurAPI is the error for an answer of a proxy, or of another server, instead of the API. Once the API has
// answered, any such status is temporary: a proxy answers 404 or 500 while the server restarts, or 520 if a connection
// broke. So a worker keeps its results until the server accepts them.
func (l *Ledger) notOurAPI(res *http.Response) error {
	text := fmt.Sprintf("%s answers %s", l.Remote, res.Status)
	if res.StatusCode == http.StatusRequestEntityTooLarge {
		return tooLarge(text, "a proxy may have a bound of its own, such as client_max_body_size of nginx")
	}
	if l.opened || slices.Contains(temporaryStatus, res.StatusCode) {
		err := &ledger.Error{Kind: ledger.ErrUnavailable, Message: text, Hint: hintAgain}
		if slices.Contains(contentStatus, res.StatusCode) {
			err.Err = errBarred
		}
		return err
	}
	return failure.New(failure.ExitNoLedger, "no_ledger", text+": it is not the HTTP API of a ledger",
		"give the part of the URL before /api/v1: --db https://host/prefix")
}

// errTooSlow is the cause of an error if the server gave up a request because it took too long.
var errTooSlow = errors.New("the answer took too long")

// errTooLarge is the cause of an error if a request is too large for the server or a proxy.
var errTooLarge = errors.New("the request is too large")

// errBarred is the cause of an error if a proxy or a firewall refused a request, perhaps because of its content.
var errBarred = errors.New("the request is refused before the server")

func tooLarge(detail, hint string) error {
	f := failure.Usage("too_large", hint, "%s", detail)
	f.Cause = errTooLarge
	return f
}

// errorOf returns the error that the ledger itself would have returned.
func errorOf(p answer.Problem) error {
	kind := map[string]error{"not_found": ledger.ErrNotFound, "lease_lost": ledger.ErrLeaseLost,
		"unavailable": ledger.ErrUnavailable, "too_slow": ledger.ErrUnavailable, "too_many": ledger.ErrUnavailable,
		"conflict": ledger.ErrConflict}[p.Code]
	switch {
	case p.Code == "not_found" && p.Field == "path":
		return failure.New(failure.ExitNoLedger, "schema", "the server is of another version: "+p.Detail,
			"install the same version of ledgerd on both machines")
	case p.Code == "too_slow":
		return &ledger.Error{Kind: kind, Message: p.Detail, Hint: p.Hint, Err: errTooSlow}
	case kind != nil:
		return &ledger.Error{Kind: kind, Message: p.Detail, Hint: p.Hint}
	case p.Code == "too_large":
		return tooLarge(p.Detail, p.Hint)
	case p.Code == "invalid":
		return &ledger.InvalidError{Field: p.Field, Reason: strings.TrimPrefix(p.Detail, p.Field+": "), Hint: p.Hint}
	case p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden ||
		p.Status == http.StatusMisdirectedRequest || p.Code == "too_many_logins":
		f := failure.New(failure.ExitDenied, p.Code, p.Detail, p.Hint)
		if p.Code == "unauthorized" {
			f.Hint = "the token is in LEDGERD_TOKEN, or in the file that --token-file names; " + p.Hint
		}
		f.Cause = ledger.ErrDenied
		return f
	case p.Status >= http.StatusInternalServerError:
		return failure.New(failure.ExitError, p.Code, "the server: "+p.Detail, p.Hint)
	}
	return failure.Usage(p.Code, p.Hint, "%s", p.Detail)
}
