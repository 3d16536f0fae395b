//go:build unix

package mail

import (
	"bytes"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/plugins/internal/manualtest"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

func TestAddress(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{"ann@example.com", "<ann@example.com>", ""},
		{" ann@example.com ", "<ann@example.com>", ""},
		{"Ann <ann+list@example.com>", `"Ann" <ann+list@example.com>`, ""},
		{`"Ann, B." <ann@example.com>`, `"Ann, B." <ann@example.com>`, ""},
		{"Änn <ann@bücher.example>", "=?utf-8?q?=C3=84nn?= <ann@xn--bcher-kva.example>", ""},
		{"Ann   B <ann@example.com>", `"Ann B" <ann@example.com>`, ""},
		{"", "", "not an address"},
		{"ann", "", "not an address"},
		{"ann@", "", "not an address"},
		{"@example.com", "", "not an address"},
		{"ann@example.com, bob@example.com", "", "not an address"},
		{"ann@example.com\r\nBcc: bob@example.com", "", "control character at byte 16"},
		{"ann@example.com\n", "", "control character"},
		{"ann\x00@example.com", "", "control character"},
		{"=?utf-8?q?A=0D=0ABcc:_bob?= <ann@example.com>", "", "not an address"},
		{"A\u2028B <ann@example.com>", "", "control character"},
		{"ann\xff@example.com", "", "not UTF-8"},
		{`"ann bob"@example.com`, "", "blanks, quotes"},
		{`"ann> RCPT TO:<bob"@example.com`, "", "blanks, quotes"},
		{`"@relay.example:bob"@example.com`, "", ", : ; @ before"},
		{`"bob@example.org"@example.com`, "", ", : ; @ before"},
		{`"bob,ann"@example.com`, "", ", : ; @ before"},
		{"änn@example.com", "", "ASCII before the @"},
		{"ann@[127.0.0.1]", "", "network address"},
		{"ann@exa_mple.com", "", "no domain name"},
		{strings.Repeat("a", 65) + "@example.com", "", "more than 64 bytes"},
		{"ann@" + strings.Repeat("a.", 130) + "com", "", "no domain name"},
	} {
		got, err := parseAddress(tt.in)
		switch {
		case tt.err == "" && (err != nil || got.String() != tt.want):
			t.Errorf("%q: got %s, %v, want %s", tt.in, got.String(), err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%q: got %v, %v, want an error with %q", tt.in, got, err, tt.err)
		}
	}
}

// folder makes a folder of templates.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestWords(t *testing.T) {
	templates := folder(t, map[string]string{
		"spring.subject": "For {{.name}}\n", "spring.txt": "Dear {{.name}}, {{.n}} of us", "spring.html": "<p>Dear {{.name}}",
		"plain.txt": "Dear {{.name}}", "only.subject": "Hello",
		"odd.txt": "{{.name", "calls.txt": "{{template \"nowhere\"}}", "lines.subject": "a\nb", "lines.txt": "x",
		"endless.txt": "{{define \"a\"}}" + strings.Repeat("x", 1<<10) + "{{template \"a\"}}{{end}}{{template \"a\"}}",
		"large.txt":   strings.Repeat("x", maxTemplate+1),
	})
	must.OK(t, syscall.Mkfifo(filepath.Join(templates, "pipe.txt"), 0o600))
	data := Data{}
	must.OK(t, data.UnmarshalJSON([]byte(`{"name":"<Ann>","n":1000000}`)))
	for _, tt := range []struct {
		name, folder string
		in           In
		want         parts
		fate         failure.Fate
		err          string
	}{
		{"text", "", In{Subject: "Hi", Text: "{{.name}}"}, parts{"Hi", "{{.name}}", ""}, 0, ""},
		{"html", "", In{Subject: "Hi", HTML: "<b>"}, parts{"Hi", "", "<b>"}, 0, ""},
		{"blanks", "", In{Subject: " Hi    you ", Text: "x"}, parts{"Hi you", "x", ""}, 0, ""},
		{"template", templates, In{Template: "spring", Data: data}, parts{"For <Ann>", "Dear <Ann>, 1000000 of us",
			"<p>Dear &lt;Ann&gt;"}, 0, ""},
		{"template and subject", templates, In{Template: "plain", Subject: "Hi", Data: data}, parts{"Hi", "Dear <Ann>", ""},
			0, ""},
		{"nothing", "", In{Subject: "Hi"}, parts{}, failure.Never, "nothing to send"},
		{"no subject", "", In{Text: "x"}, parts{}, failure.Never, "subject: there is none"},
		{"blank subject", "", In{Subject: "  ", Text: "x"}, parts{}, failure.Never, "subject: there is none"},
		{"a line in the subject", "", In{Subject: "a\x00b", Text: "x"}, parts{}, failure.Never, "control character"},
		{"long subject", "", In{Subject: strings.Repeat("x", maxSubject+1), Text: "x"}, parts{}, failure.Never,
			"at most 900"},
		{"template and text", templates, In{Template: "plain", Text: "x"}, parts{}, failure.Never, "text or html as well"},
		{"template without a subject", templates, In{Template: "plain", Data: data}, parts{}, failure.Never,
			"subject: there is none"},
		{"field missing", templates, In{Template: "spring", Data: Data{}}, parts{}, failure.Never, `no entry for key "name"`},
		{"no data", templates, In{Template: "spring"}, parts{}, failure.Never, `no entry for key "name"`},
		{"no folder", "", In{Template: "spring"}, parts{}, failure.Again, "no folder of templates"},
		{"no template", templates, In{Template: "summer"}, parts{}, failure.Again, "neither summer.txt nor summer.html"},
		{"only a subject", templates, In{Template: "only"}, parts{}, failure.Again, "neither only.txt"},
		{"broken template", templates, In{Template: "odd", Subject: "x"}, parts{}, failure.Again, "odd.txt"},
		{"calls what is not there", templates, In{Template: "calls", Subject: "x"}, parts{}, failure.Never, "nowhere"},
		{"endless", templates, In{Template: "endless", Subject: "x"}, parts{}, failure.Never, "more than 10485760 bytes"},
		{"a pipe", templates, In{Template: "pipe", Subject: "x"}, parts{}, failure.Again, "not a regular file"},
		{"large template", templates, In{Template: "large", Subject: "x"}, parts{}, failure.Again, "more than 1048576 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := words(t.Context(), tt.folder, tt.in)
			f, _ := end(err)
			switch {
			case tt.err == "" && (err != nil || got != tt.want):
				t.Errorf("got %+v, %v", got, err)
			case tt.err != "" && (err == nil || f != tt.fate || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("got %v %v, want %v with %q", f, err, tt.fate, tt.err)
			}
		})
	}
}

// TestTemplateLink: a template may be a symbolic link, but not one of another user. Only root can make such a link in
// the test.
func TestTemplateLink(t *testing.T) {
	templates := folder(t, map[string]string{"there": "Dear {{.name}}"})
	link := filepath.Join(templates, "linked.txt")
	must.OK(t, os.Symlink("there", link))
	in := In{Template: "linked", Subject: "Hi", Data: Data{"name": "Ann"}}
	if got, err := words(t.Context(), templates, in); err != nil || got.text != "Dear Ann" {
		t.Errorf("got %+v, %v", got, err)
	}
	if os.Getuid() != 0 {
		return
	}
	must.OK(t, os.Lchown(link, 65534, -1))
	got, err := words(t.Context(), templates, in)
	if _, code := end(err); code != "template" || got.text != "" || !strings.Contains(err.Error(), "belongs to") {
		t.Errorf("a link of another user: %+v, %v", got, err)
	}
}

// body returns the decoded part of a mail that has the content type want.
func body(t testing.TB, m *netmail.Message, want string) string {
	t.Helper()
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	must.OK(t, err)
	if kind == want {
		return decoded(t, m.Header.Get("Content-Transfer-Encoding"), m.Body)
	}
	for parts := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := parts.NextRawPart()
		if err != nil {
			t.Fatalf("no part of type %s: %v", want, err)
		}
		if strings.HasPrefix(p.Header.Get("Content-Type"), want) {
			return decoded(t, p.Header.Get("Content-Transfer-Encoding"), p)
		}
	}
}

func decoded(t testing.TB, encoding string, r io.Reader) string {
	t.Helper()
	if encoding != "quoted-printable" {
		t.Fatalf("encoding %q", encoding)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(r))
	must.OK(t, err)
	return strings.TrimRight(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
}

// FuzzMail: every mail has exactly the expected headers, goes only to the intended address, and has the item's text.
func FuzzMail(f *testing.F) {
	for _, s := range []In{
		hello("ann@example.com"), hello("Ä, B. <ann@bücher.example>"),
		{To: "ann@example.com", Subject: "Hi\r\nBcc: bob@example.com", Text: "x"},
		{To: "Ann <ann@example.com>", Subject: strings.Repeat(" ", 200) + "x", Text: ".\n.\nx", HTML: "<p>"},
		{To: strings.Repeat("a ", 80) + "<ann@example.com>", Subject: strings.Repeat("x", 300), HTML: "--x\n\n--x--"},
		{To: "=?utf-8?q?=0A?= <ann@example.com>", Subject: "=?utf-8?q?=0ABcc:_b@c.de?=", Text: "\x00"},
	} {
		f.Add(s.To, s.Subject, s.Text, s.HTML, "Ann")
	}
	templates := folder(f, map[string]string{"t.subject": "For {{.name}}", "t.txt": "Dear {{.name}}",
		"t.html": "<p title=\"{{.name}}\">{{.name}}</p>"})
	cfg := defaults("127.0.0.1:9")
	cfg.Templates = templates
	must.OK(f, cfg.Validate())
	f.Fuzz(func(t *testing.T, to, subject, text, html, name string) {
		check(t, &cfg, In{To: to, Subject: subject, Text: text, HTML: html})
		check(t, &cfg, In{To: to, Template: "t", Data: Data{"name": name}})
	})
}

var plainAddress = regexp.MustCompile(`^[!-;=?-~]+@[A-Za-z0-9.-]+$`)

func check(t *testing.T, cfg *Config, in In) {
	m, err := compose(t.Context(), cfg, in, "mail//x/1")
	if err != nil {
		return
	}
	if len(m.to) != 1 || !plainAddress.MatchString(m.to[0]) {
		t.Fatalf("%q: goes to %q", in.To, m.to)
	}
	msg, err := netmail.ReadMessage(bytes.NewReader(m.content))
	if err != nil {
		t.Fatalf("%+v: %v\n%s", in, err, m.content)
	}
	for name, values := range msg.Header {
		if len(values) != 1 {
			t.Errorf("%d headers %s", len(values), name)
		}
	}
	want := []string{"Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To"}
	got := slices.DeleteFunc(slices.Sorted(maps.Keys(msg.Header)), func(s string) bool {
		return s == "Content-Transfer-Encoding"
	})
	if !slices.Equal(got, want) {
		t.Errorf("headers %v", got)
	}
	if list, err := msg.Header.AddressList("To"); err != nil || len(list) != 1 || list[0].Address != m.to[0] {
		t.Errorf("to %v, %v, want %v", list, err, m.to)
	}
	for line := range bytes.SplitSeq(m.content, []byte("\r\n")) {
		if len(line) > 998 || bytes.ContainsAny(line, "\r\n") || !isASCII(line) {
			t.Errorf("line %q", line)
		}
	}
	p, err := words(t.Context(), cfg.Templates, in)
	must.OK(t, err)
	if s, err := new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject")); err != nil || s != p.subject {
		t.Errorf("subject %q, %v, want %q", s, err, p.subject)
	}
	plain := func(s string) string {
		return strings.TrimRight(strings.NewReplacer("\r\n", "\n").Replace(s), "\n")
	}
	for kind, want := range map[string]string{"text/plain": p.text, "text/html": p.html} {
		if want == "" || strings.Contains(want, "\r") { // the encoding changes a lone CR
			continue
		}
		msg, _ := netmail.ReadMessage(bytes.NewReader(m.content))
		if have := body(t, msg, kind); have != plain(want) {
			t.Errorf("%s has %q, want %q", kind, have, want)
		}
	}
}

func isASCII(line []byte) bool {
	return !bytes.ContainsFunc(line, func(r rune) bool { return r >= utf8.RuneSelf })
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Addr = "[::1]:25" }, ""},
		{func(c *Config) { c.Addr = "127.0.0.1" }, "server"},
		{func(c *Config) { c.Addr = ":25" }, "server"},
		{func(c *Config) { c.Addr = "smtp.example.com:smtp" }, "server"},
		{func(c *Config) { c.Addr = "smtp.example.com:0" }, "server"},
		{func(c *Config) { c.From = "news" }, "from"},
		{func(c *Config) { c.From = "news@example.com\r\nBcc: x@example.com" }, "from"},
		{func(c *Config) { c.User, c.Password = "news", "secret" }, ""},
		{func(c *Config) { c.User, c.Password, c.Addr = "news", "secret", "smtp.example.com:25" }, "tls"},
		{func(c *Config) {
			c.User, c.Password, c.Addr, c.TLS = "news", "secret", "smtp.example.com:25", "starttls"
		}, ""},
		{func(c *Config) { c.Password = "secret" }, "user"},
		{func(c *Config) { c.Timeout = time.Millisecond }, "timeout"},
		{func(c *Config) { c.ReplyTimeout = 2 * time.Hour }, "reply_timeout"},
		{func(c *Config) { c.Templates = "templates" }, "templates"},
		{func(c *Config) { c.Templates = "/does/not/exist" }, "templates"},
		{func(c *Config) { c.Attachments = "files" }, "attachments"},
		{func(c *Config) { c.Attachments = "/does/not/exist" }, "attachments"},
		{func(c *Config) { c.Maildir = "/tmp/box" }, "maildir"},
		{func(c *Config) { c.Maildir, c.Addr = "box", "" }, "maildir"},
		{func(c *Config) { c.Maildir, c.Addr = "/tmp/box", "" }, ""},
		{func(c *Config) { c.Addr = "" }, "server"},
		{func(c *Config) {
			c.User, c.Password, c.Addr, c.TLS = "news", "secret", "smtp.example.com:25", "opportunistic"
		}, "tls"},
	} {
		cfg := defaults("127.0.0.1:25")
		tt.change(&cfg)
		err := cfg.Validate()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%+v: %v", cfg, err)
		case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want+": ") ||
			strings.Contains(err.Error(), "secret")):
			t.Errorf("%+v: got %v, want an error about %s", cfg, err, tt.want)
		}
	}
}

func TestManual(t *testing.T) {
	none := []string{"localhost", "cancelled"} // report returns the context's cause instead of "cancelled"
	manualtest.Complete(t, 8, "smtp", none, reflect.TypeFor[Config](), reflect.TypeFor[In](), reflect.TypeFor[Out]())
}
