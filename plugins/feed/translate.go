package feed

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/mmcdole/gofeed"
	gorss "github.com/mmcdole/gofeed/rss"
)

// translator gives entries of RSS the links that they mean.
type translator struct{ gofeed.DefaultRSSTranslator }

// Translate is what the parser calls.
func (t translator) Translate(feed any) (*gofeed.Feed, error) {
	f, err := t.DefaultRSSTranslator.Translate(feed)
	source, ok := feed.(*gorss.Feed)
	if err != nil || !ok {
		return f, err
	}
	for i, item := range source.Items {
		e := f.Items[i]
		// The feed's own fields decide the entry's name, not the link that linkOf finds.
		e.GUID = cmp.Or(strings.TrimSpace(e.GUID), strings.TrimSpace(e.Link))
		e.Link = linkOf(item)
	}
	return f, nil
}

// linkOf is where an entry is to be read: its first link; without one its guid, if that is a URL and
// isPermaLink is not false. A file that the entry brings along is neither, if there is anything else.
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
