package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mmcdole/gofeed"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// These are the limits of a feed. The parser is recursive, and its objects are many times as large as their text. So
// the elements are counted before the parser gets them.
const (
	maxEntries = wire.MaxEmit
	maxParts   = 500_000 // elements, texts and comments of XML; objects and lists of JSON
	maxDepth   = 100     // elements or objects inside of each other; feeds have about 10
	maxHTML    = 1 << 28 // bytes by which the texts of a feed may grow, see growth
)

var errTooMuch = errors.New("is not like a feed")

// survey counts the parts of a feed and finds the end of its last complete entry.
type survey struct {
	entries, parts int
	open           []string // the closing text of each open element or object, outermost first
	entry          int      // depth of the open entry, 0 if there is none
	whole          int64    // end of the last complete entry, 0 if there is none yet
	rest           string   // the closing text of the feed at that place
}

// begin opens an element or object.
func (s *survey) begin(closer string, isEntry bool) {
	s.open = append(s.open, closer)
	if isEntry {
		s.entries++
	}
	if isEntry && s.entry == 0 {
		s.entry = len(s.open)
	}
}

// end closes the innermost element or object, at an offset of the text. whole is false if the text does not contain
// its closing tag.
func (s *survey) end(at int64, whole bool) {
	isEntry := s.entry == len(s.open)
	s.open = s.open[:len(s.open)-1]
	if !isEntry {
		return
	}
	if s.entry = 0; whole {
		closers := slices.Clone(s.open)
		slices.Reverse(closers)
		s.whole, s.rest = at, strings.Join(closers, "")
	}
}

func (s *survey) check(ctx context.Context) error {
	switch {
	case len(s.open) > maxDepth:
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

// cut returns the feed up to its last complete entry, and closes it. It returns nil if there is no complete entry.
func (s *survey) cut(text []byte, from int64) []byte {
	if s.whole == 0 {
		return nil
	}
	return slices.Concat(text[from:s.whole], []byte(s.rest))
}

// roots are the root elements of feeds.
var roots = map[string]bool{"rss": true, "rdf": true, "feed": true}

// surveyXML checks XML and returns its root element. It cuts off all text before and after the root, including
// declarations of entities, so no entity is followed. After a syntax error it returns the feed up to its last complete
// entry.
func surveyXML(ctx context.Context, text []byte) ([]byte, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = false // like the parser's
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	root, grown, looked, texts := int64(-1), int64(0), 0, []hypertext{}
	for s := (survey{}); ; s.parts++ {
		at := d.InputOffset()
		token, err := d.Token()
		if err != nil && root < 0 {
			err = gofeed.ErrFeedTypeNotDetected
		}
		if err != nil {
			return s.cut(text, root), err
		}
		raw := text[at:d.InputOffset()]
		switch token := token.(type) {
		case xml.StartElement:
			name := strings.ToLower(token.Name.Local)
			if root < 0 && !roots[name] {
				return nil, gofeed.ErrFeedTypeNotDetected
			}
			if root < 0 {
				root = at
			}
			s.begin("</"+nameIn(raw)+">", name == "item" || name == "entry")
			s.parts += len(token.Attr)
			texts = append(texts, hypertext{raw, d.InputOffset(), plainType(token.Attr)})
		case xml.EndElement:
			if t := texts[len(texts)-1]; t.plain != "" {
				inner := text[t.inner:at]
				looked += len(inner)
				// Texts in each other are looked at again and again.
				if more := grown + growthOf(inner); more > maxHTML || looked > 2*len(text) {
					t.spare()
				} else {
					grown = more
				}
			}
			texts = texts[:len(texts)-1]
			closer := s.open[len(s.open)-1]
			s.end(d.InputOffset(), bytes.HasPrefix(raw, []byte(strings.TrimSuffix(closer, ">"))))
			if len(s.open) == 0 {
				return text[root:d.InputOffset()], nil
			}
		}
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
}

// hypertext is an element of which the parser may build a tree of HTML, to complete relative links and to remove a div.
// See growth for what that may cost.
type hypertext struct {
	tag   []byte
	inner int64  // where its content begins
	plain string // the type with which the parser builds no tree and decodes entities as before; "" if it builds none
}

func plainType(attrs []xml.Attr) (plain string) {
	for _, a := range attrs {
		switch value := strings.ToLower(a.Value); {
		case a.Name.Local != "type":
		case value == "html":
			plain = "text"
		case strings.Contains(value, "xhtml"):
			plain = "x"
		}
	}
	return plain
}

// spare changes the tag so that the parser leaves the text as it is. The tag keeps its length and loses its other
// attributes.
func (t hypertext) spare() {
	last := len(t.tag) - 1
	for i := copy(t.tag[:last], "<"+nameIn(t.tag)+" type="+t.plain); i < last; i++ {
		t.tag[i] = ' '
	}
}

// nameIn returns the name of an element with its prefix, as in its tag.
func nameIn(tag []byte) string {
	name := bytes.TrimPrefix(tag, []byte("<"))
	if i := bytes.IndexAny(name, " \t\r\n/>"); i >= 0 {
		name = name[:i]
	}
	return string(name)
}

// surveyJSON checks JSON. After a syntax error it returns the feed up to its last complete entry.
func surveyJSON(ctx context.Context, text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	for s := (survey{}); ; s.parts++ {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return s.cut(text, 0), err
		}
		switch token {
		case json.Delim('{'):
			s.begin("}", len(s.open) == 2) // an object in a list of the feed
		case json.Delim('['):
			s.begin("]", false)
		case json.Delim('}'), json.Delim(']'):
			if s.end(d.InputOffset(), true); len(s.open) == 0 {
				return text, nil
			}
		}
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
}
