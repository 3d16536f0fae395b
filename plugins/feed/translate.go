package feed

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/mmcdole/gofeed"
	gorss "github.com/mmcdole/gofeed/rss"
)

// translator sets the links of RSS entries.
type translator struct{ gofeed.DefaultRSSTranslator }

// Translate is called by the parser.
func (t translator) Translate(feed any) (*gofeed.Feed, error) {
	f, err := t.DefaultRSSTranslator.Translate(feed)
	source, ok := feed.(*gorss.Feed)
	if err != nil || !ok {
		return f, err
	}
	entries := map[string]int{} // without a guid, by link
	for _, e := range f.Items {
		if e.GUID, e.Link = strings.TrimSpace(e.GUID), strings.TrimSpace(e.Link); e.GUID == "" && e.Link != "" {
			entries[e.Link]++
		}
	}
	for i, item := range source.Items {
		e := f.Items[i]
		// The id comes from the feed's own fields, not from the link that linkOf finds. A link of several entries tells
		// none of them from the others.
		if e.GUID == "" && entries[e.Link] > 1 {
			e.GUID = content(e)
		}
		e.GUID = cmp.Or(e.GUID, e.Link)
		e.Link = linkOf(item)
	}
	return f, nil
}

// linkOf returns the link of an entry: its first link, else its guid, if that is a URL and isPermaLink is not false.
// The URL of an enclosed file is used only if there is no other.
func linkOf(item *gorss.Item) string {
	links := slices.Clone(item.Links)
	if g := item.GUID; g != nil && !strings.EqualFold(strings.TrimSpace(g.IsPermalink), "false") && isURL(g.Value) {
		links = append(links, g.Value)
	}
	isFile := func(link string) bool {
		return slices.ContainsFunc(item.Enclosures, func(e *gorss.Enclosure) bool { return e.URL == link })
	}
	for _, link := range links {
		if link = strings.TrimSpace(link); link != "" && !isFile(link) {
			return link
		}
	}
	return strings.TrimSpace(item.Link)
}

func isURL(s string) bool {
	u, err := url.Parse(strings.TrimSpace(s))
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
