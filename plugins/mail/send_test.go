package mail

import (
	"bytes"
	netmail "net/mail"
	"testing"
)

func TestSend(t *testing.T) {
	leakFree(t)
	var box mailbox
	box.listen(t, nil)
	cfg := open(t, defaults(box.addr))
	var ids []string
	for range 3 {
		out, err := post(t.Context(), cfg, hello("Ann <ann@example.com>"))
		if err != nil || out.Reply == "" || out.Bytes == 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		ids = append(ids, out.MessageID)
	}
	if ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("attempts at one mail have ids %v", ids)
	}
	other, err := post(t.Context(), cfg, hello("bob@example.com"))
	if err != nil || other.MessageID == ids[0] {
		t.Errorf("another mail has the id %s of the first, %v", other.MessageID, err)
	}
	mails := box.taken()
	if len(mails) != 4 || mails[0].to != "ann@example.com" || mails[0].from != "news@example.com" {
		t.Fatalf("%+v", mails)
	}
	if n := box.connections(); n != 1 {
		t.Errorf("%d connections for four mails in a row", n)
	}
	m, err := netmail.ReadMessage(bytes.NewReader(mails[0].content))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"From": `"Example News" <news@example.com>`, "To": `"Ann" <ann@example.com>`, "Subject": "Hello", "Message-Id": ids[0],
	} {
		if have := m.Header.Get(name); have != want {
			t.Errorf("%s: %s, want %s", name, have, want)
		}
	}
}
