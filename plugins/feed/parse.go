package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mmcdole/gofeed"
	"golang.org/x/net/html"
	"golang.org/x/sync/semaphore"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
)

// parsed is a parsed feed.
type parsed struct {
	*gofeed.Feed
	note string // the problems that were repaired
	cut  bool   // the feed breaks off; only its complete entries are here
}

// parse parses a feed. Errors are a *failure.Error.
func parse(ctx context.Context, body []byte, contentType string, turn *semaphore.Weighted) (p parsed, err error) {
	if err := turn.Acquire(ctx, 1); err != nil {
		return p, failure.Transient("timeout", errors.New("no time was left to take the feed apart"))
	}
	defer turn.Release(1)
	text, note, err := web.Text(body, contentType)
	if err != nil {
		return p, failure.Permanent("bad_charset", err)
	}
	text = bytes.TrimSpace(text)
	var look func(context.Context, []byte) ([]byte, error)
	switch {
	case len(text) == 0:
		return p, failure.Permanent("not_a_feed", errors.New("the server's answer is empty"))
	case text[0] == '{':
		look = surveyJSON
	case text[0] == '<':
		text, look = illegal().ReplaceAll(bytes.Map(inXML, text), nil), surveyXML
	default:
		return p, notAFeed(text)
	}
	feed, broken := look(ctx, text)
	if err = broken; feed != nil {
		p.Feed, err = takeApart(ctx, feed)
	}
	switch {
	case ctx.Err() != nil:
		return p, failure.Transient("timeout", errors.New("the feed was not taken apart within the deadline"))
	case errors.Is(err, errTooMuch):
		return p, failure.Permanent("too_large", err)
	case errors.Is(err, gofeed.ErrFeedTypeNotDetected):
		return p, notAFeed(text)
	case err == nil && broken != nil && len(p.Items) == 0:
		err = broken
		fallthrough
	case err != nil:
		return p, failure.Permanent("bad_feed", fmt.Errorf("cannot be read as a feed: %w", err))
	case p.FeedType == "json" && !strings.Contains(p.FeedVersion, "jsonfeed.org") && len(p.Items) == 0:
		return p, failure.Permanent("not_a_feed", errors.New(`this is JSON, but no JSON Feed: "version" is missing`))
	case broken != nil:
		p.cut = true
		note = join(note, fmt.Sprintf("the feed breaks off (%.200s): only the entries before that were read", broken.Error()))
	}
	p.FeedVersion, p.note = p.FeedVersion[strings.LastIndexByte(p.FeedVersion, '/')+1:], note
	return p, nil
}

func join(note, more string) string { return strings.TrimPrefix(note+"; "+more, "; ") }

// takeApart runs the parser. No feed may end the process, so a panic of the parser becomes an error.
func takeApart(ctx context.Context, text []byte) (feed *gofeed.Feed, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("the parser failed: %v", x)
		}
	}()
	parser := gofeed.NewParser()
	parser.RSSTranslator = translator{gofeed.DefaultRSSTranslator{DisableContentImageScan: true}} // articles have none
	return parser.Parse(&patient{ctx, bytes.NewReader(text)})
}

// patient is a reader that stops the parser at the deadline.
type patient struct {
	ctx  context.Context
	text *bytes.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.text.Read(b[:min(len(b), 4<<10)])
}

// inXML drops characters that XML does not allow but some feeds contain.
func inXML(r rune) rune {
	if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\ufffe' || r == '\uffff' {
		return -1
	}
	return r
}

// illegal is a reference to a character that inXML drops. The decoder stops at one.
var illegal = lazyregexp.New(`&#(0*([0-8]|1[124-9]|2\d|3[01]|6553[45])|(?i:x0*([0-8bcef]|1[\da-f]|fff[ef])));`)

// notAFeed describes the answer. If it is a web page with a link to a feed, the error names that link.
func notAFeed(text []byte) error {
	err := fmt.Errorf("this is not a feed: it begins with %.60q", text[:min(len(text), 300)])
	if at := linkedFeed(text); at != "" {
		err = fmt.Errorf("this is a web page; its feed is at %.300s", at)
	}
	return failure.Permanent("not_a_feed", err)
}

// linkedFeed returns the first link to a feed in a web page, unchanged.
func linkedFeed(page []byte) string {
	z := html.NewTokenizer(bytes.NewReader(page[:min(len(page), 256<<10)]))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return ""
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			if token.Data != "link" {
				continue
			}
			attr := map[string]string{}
			for _, a := range token.Attr {
				attr[a.Key] = a.Val
			}
			if strings.EqualFold(attr["rel"], "alternate") && feedTypes().MatchString(attr["type"]) {
				return attr["href"]
			}
		}
	}
}

var feedTypes = lazyregexp.New(`(?i)^application/(rss\+xml|atom\+xml|feed\+json)$`)
