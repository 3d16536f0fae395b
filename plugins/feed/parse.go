package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"mime"
	"regexp"
	"strings"

	"github.com/mmcdole/gofeed"
	"golang.org/x/net/html"
	"golang.org/x/sync/semaphore"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/internal/web"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// What a feed may consist of. The parser makes objects of elements, many times as large as their
// text, and goes down into them by calling itself: so they are counted before it sees them.
const (
	maxEntries = wire.MaxEmit
	maxParts   = 500_000 // elements, texts and comments of XML; objects and lists of JSON
	maxDepth   = 100     // elements or objects inside of each other; feeds have about 10
)

var errTooMuch = errors.New("is not like a feed")

// survey counts what there is to parse.
type survey struct{ entries, parts, depth int }

func (s *survey) check(ctx context.Context) error {
	switch {
	case s.depth > maxDepth:
		return fmt.Errorf("it %w: it has elements inside of more than %d others", errTooMuch, maxDepth)
	case s.parts > maxParts:
		return fmt.Errorf("it %w: it has more than %d parts", errTooMuch, maxParts)
	case s.entries > maxEntries:
		return fmt.Errorf("it %w: it has more than %d entries", errTooMuch, maxEntries)
	case s.parts%1000 == 0:
		return ctx.Err()
	}
	return nil
}

// parse reads a feed. The note says what was wrong and could be put right. Errors: *failure.Error.
func parse(ctx context.Context, body []byte, contentType string, turn *semaphore.Weighted) (f *gofeed.Feed, note string, err error) {
	if err := turn.Acquire(ctx, 1); err != nil {
		return nil, "", failure.Transient("timeout", errors.New("no time was left to take the feed apart"))
	}
	defer turn.Release(1)
	text, note, err := web.Text(body, contentType)
	if err != nil {
		return nil, "", failure.Permanent("bad_charset", err)
	}
	text = bytes.TrimSpace(text)
	whole := text
	switch {
	case len(text) == 0:
		return nil, "", failure.Permanent("not_a_feed", errors.New("the server's answer is empty"))
	case text[0] == '{':
		err = surveyJSON(ctx, text)
	case text[0] == '<':
		text = bytes.Map(inXML, text)
		whole = text
		text, err = surveyXML(ctx, text)
	default:
		return nil, "", notAFeed(text, contentType)
	}
	if err == nil {
		f, err = gofeed.NewParser().Parse(&patient{ctx, bytes.NewReader(text)})
	}
	switch {
	case ctx.Err() != nil:
		return nil, "", failure.Transient("timeout", errors.New("the feed was not taken apart within the deadline"))
	case errors.Is(err, errTooMuch):
		return nil, "", failure.Permanent("too_large", err)
	case errors.Is(err, gofeed.ErrFeedTypeNotDetected):
		return nil, "", notAFeed(whole, contentType)
	case err != nil:
		return nil, "", failure.Permanent("bad_feed", fmt.Errorf("cannot be read as a feed: %w", err))
	case f.FeedType == "json" && !strings.Contains(f.FeedVersion, "jsonfeed.org") && len(f.Items) == 0:
		return nil, "", failure.Permanent("not_a_feed", errors.New(`this is JSON, but no JSON Feed: "version" is missing`))
	}
	f.FeedVersion = f.FeedVersion[strings.LastIndexByte(f.FeedVersion, '/')+1:]
	return f, note, nil
}

// patient lets a parser go on as long as the deadline is not over.
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

// inXML drops what XML cannot hold, and some feeds do.
func inXML(r rune) rune {
	if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\ufffe' || r == '\uffff' {
		return -1
	}
	return r
}

// roots are the elements that feeds are.
var roots = map[string]bool{"rss": true, "rdf": true, "feed": true}

// surveyXML looks through XML, and cuts off what comes before the first element and after its end:
// declarations of entities among it, of which none is ever followed.
func surveyXML(ctx context.Context, text []byte) ([]byte, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = false // like the parser's
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	root := int64(-1)
	for s := (survey{}); ; s.parts++ {
		at := d.InputOffset()
		token, err := d.Token()
		if err != nil && root < 0 {
			err = gofeed.ErrFeedTypeNotDetected
		}
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			name := strings.ToLower(token.Name.Local)
			if root < 0 && !roots[name] {
				return nil, gofeed.ErrFeedTypeNotDetected
			}
			if root < 0 {
				root = at
			}
			if name == "item" || name == "entry" {
				s.entries++
			}
			s.depth++
			s.parts += len(token.Attr)
		case xml.EndElement:
			if s.depth--; s.depth == 0 {
				return text[root:d.InputOffset()], nil
			}
		}
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
}

// surveyJSON looks through JSON.
func surveyJSON(ctx context.Context, text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	for s := (survey{}); ; s.parts++ {
		token, err := d.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if s.depth++; s.depth == 3 && token == json.Delim('{') { // an object in a list of the feed
				s.entries++
			}
		case json.Delim('}'), json.Delim(']'):
			if s.depth--; s.depth == 0 {
				return nil
			}
		}
		if err := s.check(ctx); err != nil {
			return err
		}
	}
}

// notAFeed says what came instead, and where the feed is if a web page says so.
func notAFeed(text []byte, contentType string) error {
	said, _, _ := mime.ParseMediaType(contentType)
	err := fmt.Errorf("this is no feed: the server says it is %.60q", said)
	if at := linkedFeed(text); at != "" {
		err = fmt.Errorf("this is a web page; its feed is at %.300s", at)
	}
	return failure.Permanent("not_a_feed", err)
}

// linkedFeed is the feed that a web page names in its head, as it names it.
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
			if strings.EqualFold(attr["rel"], "alternate") && feedTypes.MatchString(attr["type"]) {
				return attr["href"]
			}
		}
	}
}

var feedTypes = regexp.MustCompile(`(?i)^application/(rss\+xml|atom\+xml|feed\+json)$`)
