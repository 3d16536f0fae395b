package feed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strings"

	"golang.org/x/sync/semaphore"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
)

const (
	maxValidator = 1 << 10 // bytes of a stored ETag or Last-Modified
	accept       = "application/atom+xml, application/rss+xml, application/feed+json, application/xml;q=0.9, */*;q=0.5"
)

// fetcher fetches feeds. It is safe for concurrent use.
type fetcher struct {
	*web.Client
	maxBody int64
	parsing *semaphore.Weighted // limits how many feeds are parsed at a time: parsing takes many times the size of a feed
}

// packings are the values of Content-Encoding for packed bodies. Some servers send a character set or "identity" there.
var packings = lazyregexp.New(`(?i)\b(gzip|deflate|compress|br|zstd|dcb|dcz)\b`)

func newFetcher(cfg *Config) (*fetcher, error) {
	client, err := web.NewClient(cfg.reach())
	if err != nil {
		return nil, err
	}
	client.Transport.DisableCompression = false // max_body limits the unpacked bytes
	return &fetcher{client, cfg.MaxBody, semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}, nil
}

// answer is the answer of a server.
type answer struct {
	out         Out // the fields that need no parsing
	contentType string
	body        []byte   // nil if nothing has changed
	at          *url.URL // its URL, without a password
}

// unchanged reports whether the feed is the same as before.
func (a *answer) unchanged(before Out) bool {
	return a.out.Status == http.StatusNotModified || a.out.Digest == before.Digest
}

// fetch fetches a feed. It first tries the URL to which the feed has moved permanently, if one is known. If that fails
// permanently, it tries the given URL. Errors are a *failure.Error, or a *web.Busy if the feed has to wait for its
// host.
func (f *fetcher) fetch(ctx context.Context, given string, before Out) (*answer, error) {
	first, err := web.ParseURL(&url.URL{}, given)
	if err != nil {
		return &answer{}, failure.Permanent("bad_url", err)
	}
	if before.MovedTo != "" {
		if moved, err := web.ParseURL(&url.URL{}, before.MovedTo); err == nil {
			a, err := f.follow(ctx, moved, before)
			if err == nil && a.out.MovedTo == "" {
				a.out.MovedTo = before.MovedTo
			}
			if fail, ok := errors.AsType[*failure.Error](err); !ok || fail.Fate == failure.Again {
				return a, err
			}
		}
	}
	return f.follow(ctx, first, before)
}

// follow fetches u and follows its redirects.
func (f *fetcher) follow(ctx context.Context, u *url.URL, before Out) (*answer, error) {
	a := &answer{}
	path, forGood := web.NewPath(), u.User == nil // a password must not get into an output
	var seat *web.Seat
	defer func() { seat.Leave() }()
	for {
		a.out.FinalURL = u.Redacted()
		var err error
		if seat, err = f.Enter(ctx, seat, u); err != nil {
			return a, tooLate(ctx, err)
		}
		res, err := f.ask(ctx, u, seat, path, before)
		if err != nil {
			return a, err
		}
		seat.Answered(res)
		a.out.Status = res.StatusCode
		if !web.IsRedirect(res.StatusCode) {
			defer res.Body.Close()
			return a, f.take(ctx, a, res, before)
		}
		res.Body.Close()
		if u, err = path.Follow(u, res); err != nil {
			return a, err
		}
		forGood = forGood && u.User == nil && (res.StatusCode == http.StatusMovedPermanently ||
			res.StatusCode == http.StatusPermanentRedirect)
		if forGood {
			a.out.MovedTo = u.String()
		}
	}
}

// ask sends one request. The stored ETag and Last-Modified are sent only to the URL that returned them.
func (f *fetcher) ask(ctx context.Context, u *url.URL, seat *web.Seat, path *web.Path, before Out) (*http.Response,
	error) {
	if err := seat.Turn(ctx); err != nil {
		return nil, tooLate(ctx, err)
	}
	req := f.Request(ctx, http.MethodGet, u, accept)
	if before.FinalURL == u.Redacted() {
		setIf(req.Header, "If-None-Match", before.ETag)
		setIf(req.Header, "If-Modified-Since", before.LastModified)
	}
	res, err := f.Do(req, path)
	if err != nil {
		return nil, broken(ctx, err)
	}
	return res, nil
}

func setIf(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}

// tooLate returns a deadline error if the deadline passed while the feed waited for its host.
func tooLate(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return broken(ctx, err)
	}
	return err
}

// broken returns the failure of a request, or of a body that broke off.
func broken(ctx context.Context, err error) *failure.Error {
	if ctx.Err() != nil {
		err = web.ErrDeadline // an item that was cancelled gets this error, too; work replaces it
	}
	return web.Classify(err)
}

// take reads an answer that is not a redirect.
func (f *fetcher) take(ctx context.Context, a *answer, res *http.Response, before Out) error {
	switch {
	case res.StatusCode == http.StatusNotModified && (res.Request.Header.Get("If-None-Match") != "" ||
		res.Request.Header.Get("If-Modified-Since") != ""):
		a.out.ETag, a.out.LastModified = before.ETag, before.LastModified
		return nil
	case res.StatusCode == http.StatusGone:
		return failure.Permanent("http_410", errors.New("status 410: the feed is gone for good, and its server wants "+
			"not to ask again: ledgerd cancel stops that"))
	case res.StatusCode != http.StatusOK:
		return web.StatusError(res)
	case packings().MatchString(res.Header.Get("Content-Encoding")):
		return failure.Permanent("bad_encoding", fmt.Errorf("the server packs it as %.40q, which it was not asked to",
			res.Header.Get("Content-Encoding")))
	case res.ContentLength > f.maxBody:
		return f.tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, f.maxBody+1))
	switch {
	case err != nil:
		return broken(ctx, fmt.Errorf("it broke off after %d bytes: %w", len(body), err))
	case int64(len(body)) > f.maxBody:
		return f.tooLarge()
	}
	sum := sha256.Sum256(body)
	a.body, a.contentType = body, res.Header.Get("Content-Type")
	at := *res.Request.URL
	at.User, a.at = nil, &at
	a.out.Bytes, a.out.Digest = len(body), hex.EncodeToString(sum[:])
	a.out.ETag, a.out.LastModified = validator(res.Header.Get("ETag")), validator(res.Header.Get("Last-Modified"))
	return nil
}

func (f *fetcher) tooLarge() error {
	return failure.Permanent("too_large", fmt.Errorf("the feed has more than max_body, %d bytes", f.maxBody))
}

// validator returns a header's value if it can be stored and sent back unchanged.
func validator(value string) string {
	if len(value) > maxValidator || strings.ToValidUTF8(value, "") != value {
		return ""
	}
	return value
}

// clip shortens a text of a feed or a server.
func clip(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
