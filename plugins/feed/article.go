package feed

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/mmcdole/gofeed"

	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

const (
	kindArticle = "article"
	maxText     = 500 // bytes of a title or a name
	maxList     = 20  // authors, tags and files of an entry
)

// Article is the payload of an item of kind article: an entry of a feed. Empty fields are left out. The feed's authors
// control every field, and summary and content often are HTML.
type Article struct {
	Feed      string     `json:"feed"`
	FeedTitle string     `json:"feed_title,omitempty"`
	ID        string     `json:"id"`
	Link      string     `json:"link,omitempty"`
	Title     string     `json:"title,omitempty"`
	Authors   []string   `json:"authors,omitempty"`
	Tags      []string   `json:"tags,omitempty"`
	Published *time.Time `json:"published,omitempty"`
	Updated   *time.Time `json:"updated,omitempty"`
	Summary   string     `json:"summary,omitempty"`
	Content   string     `json:"content,omitempty"`
	Files     []File     `json:"files,omitempty"`
	Cut       bool       `json:"cut,omitempty"` // texts were left out, because the feed is too large
}

// File is a file of an entry, such as an episode of a podcast.
type File struct {
	URL  string `json:"url"`
	Type string `json:"type,omitempty"`
}

// articlesOf returns the entries of a feed. If several entries have the same id, only the first is returned. at is the
// URL of the document: links may be relative to it.
func articlesOf(f *gofeed.Feed, from string, at *url.URL) []Article {
	seen := map[string]bool{}
	var all []Article
	for _, e := range f.Items {
		a := Article{
			Feed: from, FeedTitle: clip(f.Title, maxText), ID: idOf(e), Link: link(at, e.Link), Title: clip(e.Title, maxText),
			Published: utc(e.PublishedParsed), Updated: utc(e.UpdatedParsed), Summary: e.Description, Content: e.Content,
			Tags: some(e.Categories, func(s string) string { return s }), Authors: some(e.Authors, nameOf),
		}
		for _, file := range e.Enclosures[:min(len(e.Enclosures), maxList)] {
			if to := link(at, file.URL); to != "" {
				a.Files = append(a.Files, File{to, clip(file.Type, 100)})
			}
		}
		if !seen[a.ID] {
			seen[a.ID] = true
			all = append(all, a)
		}
	}
	return all
}

// idOf returns the id of an entry within its feed: its own id, else its link, else a hash of its content. A hash also
// replaces an id that is too long for a key or that a database cannot store.
func idOf(e *gofeed.Item) string {
	id := cmp.Or(strings.TrimSpace(e.GUID), strings.TrimSpace(e.Link))
	if id == "" {
		id = content(e)
	}
	if len(id) > wire.MaxKey || strings.ContainsRune(id, 0) || strings.ToValidUTF8(id, "") != id {
		sum := sha256.Sum256([]byte(id))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return id
}

// content returns an id that idOf replaces by its hash.
func content(e *gofeed.Item) string {
	return "\x00" + strings.Join([]string{e.Title, e.Published, e.Description, e.Content}, "\x00")
}

// link resolves a relative URL against at. It returns "" for a URL that is longer than wire.MaxKey.
func link(at *url.URL, s string) string {
	s = strings.TrimSpace(s)
	if to, err := url.Parse(s); err == nil && s != "" && !to.IsAbs() {
		s = at.ResolveReference(to).String()
	}
	if len(s) > wire.MaxKey {
		return ""
	}
	return s
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	if u.Year() < 1 || u.Year() > 9999 { // RFC 3339 has four digits for the year
		return nil
	}
	return &u
}

func nameOf(p *gofeed.Person) string {
	if p == nil {
		return ""
	}
	return cmp.Or(p.Name, p.Email)
}

// some returns the texts of the first maxList entries of a list, clipped to maxText, without empty ones.
func some[T any](list []T, text func(T) string) (out []string) {
	for _, v := range list[:min(len(list), maxList)] {
		if s := clip(strings.TrimSpace(text(v)), maxText); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// fit makes the emitted items. If they are too large for one attempt, items that are larger than their share lose
// their texts, so that no article is lost.
func fit(articles []Article) []sdk.Child {
	children, total := make([]sdk.Child, len(articles)), 0
	for i := range articles {
		var size int
		children[i], size = child(articles[i], maxArticle)
		total += size
	}
	if total <= wire.MaxEmitBytes {
		return children
	}
	for i := range articles {
		children[i], _ = child(articles[i], wire.MaxEmitBytes/len(articles))
	}
	return children
}

const maxArticle = wire.MaxPayload / 2 // bytes of an emitted item; further texts are left out

// child makes an item of an article. It leaves out texts, and then lists, until the item has at most most bytes. The
// remaining fields can still be larger.
func child(a Article, most int) (c sdk.Child, size int) {
	for _, leaveOut := range []func(){func() {}, func() { a.Content = "" }, func() { a.Summary = "" }, func() {
		a.Files, a.Tags, a.Authors = nil, nil, nil
	}} {
		leaveOut()
		payload, err := json.Marshal(a)
		if err != nil { // cannot happen: strings and valid times
			panic(err)
		}
		c = sdk.Child{Kind: kindArticle, Key: a.ID, Payload: json.RawMessage(payload)}
		if size = len(payload) + len(a.ID) + wire.MaxScope; size <= most {
			return c, size
		}
		a.Cut = true
	}
	return c, size
}
