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

// Article is the payload of an item of kind article: an entry of a feed. Unknown fields are left
// out. All of it was written by strangers, and summary and content are HTML as often as not.
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
	Cut       bool       `json:"cut,omitempty"` // texts were left out, because there is too much in the feed
}

// File is what an entry brings along, such as an episode of a podcast.
type File struct {
	URL  string `json:"url"`
	Type string `json:"type,omitempty"`
}

// articlesOf are the entries of a feed. Of entries with the same id the first of the document counts. at is the address
// of the document: links may be relative to it.
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

// idOf names an entry within its feed: by its own id; without one by its link; without that by its
// whole content. An id that is too long for a key, or no text that databases take, is replaced by
// its hash.
func idOf(e *gofeed.Item) string {
	id := cmp.Or(strings.TrimSpace(e.GUID), strings.TrimSpace(e.Link))
	if id == "" {
		id = "\x00" + strings.Join([]string{e.Title, e.Published, e.Description, e.Content}, "\x00")
	}
	if len(id) > wire.MaxKey || strings.ContainsRune(id, 0) || strings.ToValidUTF8(id, "") != id {
		sum := sha256.Sum256([]byte(id))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return id
}

// link is a URL as it stands, unless it is relative; one that is longer than any server takes is none.
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
	if t == nil || t.Year() < 1 || t.Year() > 9999 { // JSON can hold these years
		return nil
	}
	u := t.UTC()
	return &u
}

func nameOf(p *gofeed.Person) string {
	if p == nil {
		return ""
	}
	return cmp.Or(p.Name, p.Email)
}

func some[T any](list []T, text func(T) string) (out []string) {
	for _, v := range list[:min(len(list), maxList)] {
		if s := clip(strings.TrimSpace(text(v)), maxText); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// fit makes the items that are emitted. If they are too much for one attempt, those that are larger
// than their share lose their texts: better than to lose the article.
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

const maxArticle = wire.MaxPayload / 2 // bytes of an item that is emitted; texts beyond are left out

// child is an article as an item of at most so many bytes, if its texts can make it so small.
func child(a Article, most int) (c sdk.Child, size int) {
	for _, leaveOut := range []func(){func() {}, func() { a.Content = "" }, func() { a.Summary = "" }, func() {
		a.Files, a.Tags, a.Authors = nil, nil, nil
	}} {
		leaveOut()
		payload, err := json.Marshal(a)
		if err != nil { // of strings and times that were looked at
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
