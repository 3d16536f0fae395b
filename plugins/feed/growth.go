package feed

import (
	"bytes"
	"html"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// In a tree of HTML each element can get a copy of every formatting element before it that is not closed, such as <b>.
// These are about the bytes of such a copy: of the element, and for each byte of its tag and attributes.
const (
	copySize  = 256
	copyBytes = 32
)

// tagForm is a tag after its <, as the parser of HTML reads it if it does not take it for text. The last group is
// missing if the tag may end elsewhere. None has another < in it, so none hides another one.
var tagForm = lazyregexp.New(`^(/?)([a-zA-Z][^\s/<>]*)` +
	`((?:[\s/]*[^\s"'<>/=]+\s*(?:=\s*(?:"[^"<]*"|'[^'<]*'|[^\s"'<>=` + "`" + `]+))?)*[\s/]*>)?`)

// formatting and void are elements of HTML, in small letters.
var (
	formatting = setOf("a b big code em font i nobr s small strike strong tt u")
	void       = setOf("area base br col embed hr img input link meta param source track wbr")
)

func setOf(names string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		set[name] = true
	}
	return set
}

// growthOf returns about how many bytes the tree of a text may have beyond those in proportion to its length. The
// parser reads the text as it is or without its entities.
func growthOf(inner []byte) int64 {
	if !bytes.Contains(inner, []byte(cdataStart)) {
		sum := growth(inner)
		if bytes.IndexByte(inner, '&') >= 0 {
			sum += growth(decoded(inner))
		}
		return sum
	}
	var text []byte
	for len(inner) > 0 {
		before, after, _ := bytes.Cut(inner, []byte(cdataStart))
		data, rest, _ := bytes.Cut(after, []byte("]]>"))
		text, inner = append(append(text, decoded(before)...), data...), rest
	}
	return growth(text)
}

const cdataStart = "<![CDATA["

// entity matches the entities that the parser decodes, see shared.DecodeEntities there.
var entity = lazyregexp.New(`&[#0-9A-Za-z]{1,62};`)

func decoded(text []byte) []byte {
	if bytes.IndexByte(text, '&') < 0 {
		return text
	}
	return entity().ReplaceAllFunc(text, func(e []byte) []byte {
		to := html.UnescapeString(string(e))
		if to == html.UnescapeString(string(e[:len(e)-1]))+";" {
			return e
		}
		return []byte(to)
	})
}

// growth adds up, for each tag, the bytes of a copy of all formatting elements that are not closed before it. An
// element counts as closed only by an end tag right after complete elements: other texts that look like its end tag may
// be none, such as in a comment, an attribute or a cell of a table. It stops at maxHTML.
func growth(text []byte) (sum int64) {
	type element struct {
		name string
		cost int64
	}
	var open []element                           // innermost last; without a name if nothing closes it
	copies, length := int64(0), int64(len(text)) // bytes of the copies at a tag; of the text
	_, text, _ = bytes.Cut(text, []byte("<"))
	for more := len(text) > 0; more && sum <= maxHTML; sum += copies {
		var piece []byte
		piece, text, more = bytes.Cut(text, []byte("<"))
		m := tagForm().FindSubmatchIndex(piece[:min(len(piece), 8<<10)])
		if m == nil {
			if bytes.IndexAny(piece, "/!?") == 0 { // a comment or the like
				open = append(open, element{})
			}
			continue
		}
		complete := m[6] >= 0
		e := element{name: strings.ToLower(string(piece[m[4]:m[5]]))}
		switch ends := m[2] < m[3]; {
		case ends && complete:
			if last := len(open) - 1; last >= 0 && open[last].name == e.name {
				copies -= open[last].cost
				open = open[:last]
			}
		case ends:
			open = append(open, element{})
		case formatting[e.name] && complete:
			e.cost = copySize + copyBytes*int64(m[1])
			fallthrough
		case complete:
			if copies += e.cost; !void[e.name] {
				open = append(open, e)
			}
		default:
			if formatting[e.name] {
				copies += copySize + copyBytes*length
			}
			open = append(open, element{})
		}
		if len(open) > 10_000 {
			open = open[:0] // none of these is closed any more
		}
	}
	return sum
}
