package mail

import (
	"bytes"
	"mime"
	netmail "net/mail"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/plugins/mail/smtp/smtptest"
)

// headerOf returns the header of a mail, parsed and as lines.
func headerOf(t *testing.T, in In) (netmail.Header, []string) {
	t.Helper()
	cfg := defaults("127.0.0.1:25")
	cfg.From = strings.Repeat("Ärger ", 20) + "<news@example.com>"
	must.OK(t, cfg.Validate())
	m, err := compose(t.Context(), &cfg, in, "mail//x/1")
	must.OK(t, err)
	msg, err := netmail.ReadMessage(bytes.NewReader(m.content))
	must.OK(t, err)
	head, _, _ := strings.Cut(string(m.content), "\r\n\r\n")
	return msg.Header, strings.Split(head, "\r\n")
}

// TestFolding: no header line is empty or too long, and the decoded texts are the given ones.
func TestFolding(t *testing.T) {
	for _, subject := range []string{
		"Hello", "Grüße", strings.Repeat("word ", 100) + "end", strings.Repeat("Grüße ", 60) + "end", strings.Repeat("日本",
			150), strings.Repeat("x", 900),
		strings.Repeat("x", 70) + " after a long word", "a " + strings.Repeat("x", 58) +
			" b", "=?utf-8?q?not_a_word?= as it stands", "ends with =?", "e\u0301" + strings.Repeat("\U0001f600", 40),
	} {
		name := `"` + strings.Repeat("Änn ", 30) + `"`
		header, lines := headerOf(t, In{
			To: name + " <ann@example.com>", Cc: []string{strings.Repeat("Bob ", 30) + "<bob@example.com>",
				strings.Repeat("c", 80) + " <c@example.com>"},
			Subject: subject, Text: "x",
		})
		for _, line := range lines {
			if _, value, found := strings.Cut(line, ":"); line[0] != ' ' && (!found || strings.TrimSpace(value) == "") {
				t.Errorf("%.40s: the line %q has no text", subject, line)
			}
			if len(line) > maxLine || strings.TrimSpace(line) == "" || strings.HasPrefix(line, "  ") {
				t.Errorf("%.40s: the line %q of %d bytes", subject, line, len(line))
			}
		}
		if got, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject")); err != nil || got != subject {
			t.Errorf("subject %q, %v, want %q", got, err, subject)
		}
		to, err := header.AddressList("To")
		if err != nil || len(to) != 1 || to[0].Name != strings.TrimSpace(strings.Trim(name, `"`)) ||
			to[0].Address != "ann@example.com" {
			t.Errorf("to %v, %v", to, err)
		}
		cc, err := header.AddressList("Cc")
		if err != nil || len(cc) != 2 || cc[0].Name != strings.TrimSpace(strings.Repeat("Bob ", 30)) ||
			cc[1].Name != strings.Repeat("c", 80) {
			t.Errorf("cc %v, %v", cc, err)
		}
	}
}

// TestHeaders: Cc, Reply-To and List-Unsubscribe are in the header; Bcc is not.
func TestHeaders(t *testing.T) {
	in := hello("ann@example.com")
	in.Cc, in.Bcc, in.ReplyTo = []string{"Bob <bob@example.com>", "c@bücher.example"}, []string{
		"secret@example.com"}, []string{"Desk <desk@example.com>"}
	in.Unsubscribe, in.OneClick = "https://example.com/off?u=1,2&t="+strings.Repeat("x", 200), true
	header, lines := headerOf(t, in)
	for name, want := range map[string]string{
		"Cc": `"Bob" <bob@example.com>, <c@xn--bcher-kva.example>`, "Reply-To": `"Desk" <desk@example.com>`, "Bcc": "",
		"List-Unsubscribe": "<" + in.Unsubscribe + ">", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if strings.Contains(strings.Join(lines, "\n"), "secret") {
		t.Errorf("Bcc is in the header: %q", lines)
	}
	in.Bcc = nil
	without, _ := headerOf(t, in)
	if without.Get("Message-Id") != header.Get("Message-Id") {
		t.Error("the Message-ID depends on Bcc, so it can be guessed")
	}
	in.Unsubscribe, in.OneClick = "mailto:off@example.com?subject=off", false
	if header, _ := headerOf(t, in); header.Get("List-Unsubscribe") != "<mailto:off@example.com?subject=off>" ||
		header.Get("List-Unsubscribe-Post") != "" {
		t.Errorf("%v", header)
	}
}

// TestBadHeaders: a text that a header cannot hold is refused before anything is sent.
func TestBadHeaders(t *testing.T) {
	cfg := defaults("127.0.0.1:25")
	must.OK(t, cfg.Validate())
	for _, tt := range []struct {
		change func(*In)
		code   string
		err    string
	}{
		{func(in *In) { in.Cc = []string{"ann"} }, "bad_address", "cc: not an address"},
		{func(in *In) { in.Bcc = []string{"a@example.com\r\nDATA"} }, "bad_address", "bcc: has a control character"},
		{func(in *In) { in.ReplyTo = []string{""} }, "bad_address", "reply_to: not an address"},
		{func(in *In) { in.Unsubscribe = "http://example.com/off" }, "bad_mail", "neither https"},
		{func(in *In) { in.Unsubscribe = "https:///off" }, "bad_mail", "neither https"},
		{func(in *In) { in.Unsubscribe = "https://example.com/>\r\nBcc: x@example.com" }, "bad_mail", "no URL"},
		{func(in *In) { in.Unsubscribe = "https://example.com/a b" }, "bad_mail", "no URL"},
		{func(in *In) { in.Unsubscribe = "mailto:nobody" }, "bad_mail", "not an address"},
		{func(in *In) { in.OneClick = true }, "bad_mail", "no unsubscribe"},
		{func(in *In) { in.OneClick, in.Unsubscribe = true, "mailto:off@example.com" }, "bad_mail", "RFC 8058"},
	} {
		in := hello("ann@example.com")
		tt.change(&in)
		_, err := compose(t.Context(), &cfg, in, "k")
		if fate, code := end(err); fate != failure.Never || code != tt.code || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%+v: %v %s %v, want %s with %q", in, fate, code, err, tt.code, tt.err)
		}
	}
}

// TestRecipients: a mail goes to all its recipients in one transaction. If the server refuses one, none gets the mail.
func TestRecipients(t *testing.T) {
	leakFree(t)
	answers := map[string]int{}
	box := smtptest.Mailbox{AtRcpt: func(to string) error {
		if code := answers[to]; code > 0 {
			return smtptest.Answers(code, "no")(to)
		}
		return nil
	}}
	box.Listen(t, nil)
	cfg := open(t, defaults(box.Addr))
	in := hello("ann@example.com")
	in.Cc, in.Bcc = []string{"bob@example.com", "Ann <ann@example.com>"}, []string{"cy@example.com", "bob@example.com"}
	must.Do(t)(post(t.Context(), cfg, in))
	want := []string{"ann@example.com", "bob@example.com", "cy@example.com"}
	if mails := box.Taken(); len(mails) != 1 || !slices.Equal(mails[0].All, want) {
		t.Fatalf("%+v, want one mail to %q", mails, want)
	}
	for code, fate := range map[int]failure.Fate{550: failure.Never, 452: failure.Again} {
		answers["cy@example.com"] = code
		_, err := post(t.Context(), cfg, in)
		if got, _ := end(err); got != fate || !strings.Contains(err.Error(), "cy@example.com") {
			t.Errorf("%d: %v %v, want %v with the address", code, got, err, fate)
		}
	}
	if n := len(box.Taken()); n != 1 {
		t.Errorf("%d mails were taken, though one recipient was refused", n)
	}
}
