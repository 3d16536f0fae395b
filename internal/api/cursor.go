package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
)

// cursor is a place in a list. Callers get it as one word, and send it back unchanged for the next part.
type cursor struct {
	List string    `json:"l"` // digest of what the list is of: its route, its filter and its order
	Now  time.Time `json:"n"` // when the list was begun; durations of its filter count back from it
	At   time.Time `json:"a,omitzero"`
	ID   int64     `json:"i"`
	Num  int64     `json:"k,omitzero"`
}

// digest identifies a list, so that a cursor is not used with another list.
func digest(parts ...string) string {
	sum := sha256.Sum256(ledger.JSON(parts))
	return hex.EncodeToString(sum[:8])
}

// begin reads a cursor; "" is the beginning of a new list.
func begin(text string, now time.Time, parts ...string) (cursor, error) {
	fresh := cursor{List: digest(parts...), Now: now}
	if text == "" {
		return fresh, nil
	}
	var c cursor
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil || c.List != fresh.List || c.ID < 0 || c.Num < 0 {
		return c, failure.Usage("bad_cursor", "begin again without a cursor; filter and order must stay as they were",
			"this cursor is not of this list").In("cursor")
	}
	return c, nil
}

// mark is the place as a walk takes it.
func (c cursor) mark() ledger.Mark { return ledger.Mark{At: c.At, ItemID: c.ID, Number: c.Num} }

// after is the cursor further on in its list.
func (c cursor) after(m ledger.Mark) string {
	c.At, c.ID, c.Num = m.At, m.ItemID, m.Number
	return base64.RawURLEncoding.EncodeToString(ledger.JSON(c))
}
