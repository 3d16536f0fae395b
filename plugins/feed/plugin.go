package feed

import (
	"context"
	"errors"
	"io"
	"log"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

const doc = `Reads feeds (RSS, Atom, JSON Feed); every new entry becomes an item of kind article.

    ledgerd run feed https://example.com/blog.xml
    ledgerd add feed feeds.txt --every 1h
    ledgerd claim article --agent ann --limit 5

An entry becomes an article once for ever, by its id within its feed, in the same transaction in
which the reading of the feed is recorded. Asks only for what has changed (ETag, Last-Modified),
comes back when the server asks it to (` + "`Retry-After`" + `), remembers where a feed has moved for good.
A feed that waits for its host's turn ends its attempt as snoozed. That is no failure, and uses up none of max_failures.

Addresses that are not public are refused unless ` + "`allow_private`" + ` is set.
`

// Config has the settings of a machine. The package comment explains them.
type Config struct {
	AllowPrivate bool          `json:"allow_private" default:"false" doc:"also read feeds at private, loopback and other special addresses"`
	PerHost      int           `json:"per_host" tune:"true" default:"2" schema:"min=1,max=1000" doc:"feeds at a time per host"`
	Deadline     time.Duration `json:"deadline" tune:"true" default:"1m" doc:"for one feed, redirects and reading included; 100ms to 10m"`
	MaxBody      int64         `json:"max_body" tune:"true" default:"8388608" schema:"min=1024,max=67108864" doc:"bytes that a feed may have, unpacked"`
	Proxy        string        `json:"proxy" tune:"true" default:"" doc:"URL of a proxy: http, https or socks5; the environment is never looked at"`
	UserAgent    string        `json:"user_agent" tune:"true" default:"ledgerd-feed/0.1 (+https://github.com/ledgerd/ledgerd)" schema:"pattern=^[ -~]+$" doc:"sent with every request"`

	fetcher *fetcher
}

// In is the payload.
type In struct {
	URL string `json:"url" input:"url" doc:"the feed, http or https"`
}

// Out is the result, and the input of the next round.
type Out struct {
	Status       int    `json:"status,omitempty" doc:"of the answer: 200, or 304 if nothing has changed"`
	FinalURL     string `json:"final_url,omitempty" doc:"the URL that answered, after redirects"`
	MovedTo      string `json:"moved_to,omitempty" doc:"where the feed has moved for good: asked first from now on"`
	ETag         string `json:"etag,omitempty" doc:"version of what was read, in the server's words"`
	LastModified string `json:"last_modified,omitempty" doc:"the same as a date"`
	Digest       string `json:"digest,omitempty" doc:"SHA-256 of what was read"`
	Format       string `json:"format,omitempty" doc:"such as rss 2.0, atom 1.0 or json 1.1"`
	Title        string `json:"title,omitempty" doc:"of the feed"`
	Entries      int    `json:"entries" doc:"that the feed had when it was last read"`
	Bytes        int    `json:"bytes,omitempty" doc:"that were read, unpacked"`
	Note         string `json:"note,omitempty" doc:"what was odd and did not matter"`
}

// Validate refuses a config that cannot work, before the first item.
func (c *Config) Validate() error { return c.reach().Validate() }

func (c *Config) reach() web.Reach {
	return web.Reach{AllowPrivate: c.AllowPrivate, Proxy: c.Proxy, Deadline: c.Deadline, PerHost: c.PerHost,
		UserAgent: c.UserAgent}
}

// Open creates the connection pool for all items. net/http writes unexpected answers of servers to the standard logger,
// and so into ledgerd's log. Nothing else in this process uses that logger, so Open turns it off.
func (c *Config) Open(context.Context) (err error) {
	log.SetOutput(io.Discard)
	c.fetcher, err = newFetcher(c)
	return err
}

// Close ends idle connections.
func (c *Config) Close() error {
	c.fetcher.Transport.CloseIdleConnections()
	return nil
}

// Plugin returns the feed plugin. It needs no timeout of its own: the deadline limits every attempt.
func Plugin() *sdk.Plugin {
	p := sdk.New("feed", "0.1.0", work)
	p.Doc = doc
	p.Emits = []string{kindArticle}
	p.Previous = true
	p.Concurrency = 16
	return p
}

func work(ctx context.Context, cfg *Config, it sdk.Item[In]) (Out, error) {
	var before Out
	if _, err := it.Previous(&before); err != nil {
		it.Log.Warn("what was known of the feed cannot be read: it is read anew", "error", err)
		before = Out{}
	}
	limited, cancel := context.WithTimeoutCause(ctx, cfg.Deadline, web.ErrDeadline)
	defer cancel()
	out, err := read(limited, cfg, it, before)
	if b, ok := errors.AsType[*web.Busy](err); ok {
		return Out{}, sdk.Snooze(b.Wait, b.Error())
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	return out, web.Report(err)
}

// read fetches the feed and emits its entries as articles.
func read(ctx context.Context, cfg *Config, it sdk.Item[In], before Out) (Out, error) {
	a, err := cfg.fetcher.fetch(ctx, it.Payload.URL, before)
	if err != nil {
		return a.out, err
	}
	if a.unchanged(before) {
		out := before // keeps the fields that come from parsing
		out.Status, out.FinalURL, out.MovedTo, out.ETag, out.LastModified = a.out.Status, a.out.FinalURL, a.out.MovedTo,
			a.out.ETag, a.out.LastModified
		return out, sdk.Skip("nothing has changed")
	}
	f, err := parse(ctx, a.body, a.contentType, cfg.fetcher.parsing)
	if fail, ok := errors.AsType[*failure.Error](err); ok && fail.Fate != failure.Again && before.MovedTo != "" {
		before.MovedTo = "" // something else is there now
		return read(ctx, cfg, it, before)
	}
	if err != nil {
		return a.out, err
	}
	out := a.out
	out.Format, out.Title, out.Note = f.FeedType+" "+f.FeedVersion, clip(f.Title, maxText), f.note
	if f.cut { // the next round must fetch the whole feed
		out.ETag, out.LastModified, out.Digest = "", "", ""
	}
	articles := articlesOf(f.Feed, redact.URLs(it.Payload.URL), a.at) // an article needs no password
	out.Entries = len(articles)
	for _, c := range fit(articles) {
		if err := it.Emit(c); err != nil {
			return out, failure.Permanent("too_large", err)
		}
	}
	return out, nil
}
