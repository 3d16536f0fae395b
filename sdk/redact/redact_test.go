package redact_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		// URLs
		"postgres://me:hunter2@db/work":                                     "postgres://me:***@db/work",
		"cannot open postgres://me:hunter2@db/work: no":                     "cannot open postgres://me:***@db/work: no",
		"postgres://me:a/b?c#d@e@db/work":                                   "postgres://me:***@db/work",
		"postgres://me:12/34@db/work":                                       "postgres://me:***@db/work",
		`dial "https://u:p@a.example/x": refused`:                           `dial "https://u:***@a.example/x": refused`,
		"https://token:@a.example/":                                         "https://***:***@a.example/",
		"https://u:p@a.example,https://v:q@b.example":                       "https://u:***@a.example,https://v:***@b.example",
		"https://a.example:8080/@me":                                        "https://a.example:8080/@me",
		"https://[::1]:80/@me":                                              "https://[::1]:80/@me",
		"postgres://me@db/work":                                             "postgres://me@db/work",
		"https://a.example/?q=1&page=2":                                     "https://a.example/?q=1&page=2",
		"https://a.example/?api_key=abc&q=1":                                "https://a.example/?api_key=***&q=1",
		"https://a.example/?key=abc#top":                                    "https://a.example/?key=***#top",
		"https://a.example/?X-Amz-Signature=abc":                            "https://a.example/?X-Amz-Signature=***",
		"postgres://h/db?user=me&password=x&sslmode=off":                    "postgres://h/db?user=me&password=***&sslmode=off",
		"sqlite:/data/l.db?_pragma=key&_auth_token=a%20b":                   "sqlite:/data/l.db?_pragma=key&_auth_token=***",
		"see postgres://app:s3cr:et@db/x and http://h/a:b@c":                "see postgres://app:***@db/x and http://h/a:b@c",
		"http://:only@h":                                                    "http://:***@h",
		"http://a:b@c@d/":                                                   "http://a:***@d/",
		"postgres://h/x?user=a&password=s3cr&sslmode=require&sslpassword=t": "postgres://h/x?user=a&password=***&sslmode=require&sslpassword=***",
		// DSNs, flags, variables
		"host=db user=me password=hunter2 dbname=work": "host=db user=me password=*** dbname=work",
		`host=db password='a b\'c' dbname=work`:        "host=db password=*** dbname=work",
		`password=a\ b dbname=work`:                    "password=*** dbname=work",
		"x --token=abc --rows=3":                       "x --token=*** --rows=3",
		"LEDGERD_KINDS_MAIL_WITH_SMTP_PASSWORD=abc":    "LEDGERD_KINDS_MAIL_WITH_SMTP_PASSWORD=***",
		`smtp.password = "a b"`:                        "smtp.password = ***",
		"--with password=file:/etc/secret":             "--with password=file:/etc/secret",
		"--key=email":                                  "--key=email",
		"sort_key=3, max_tokens=100":                   "sort_key=3, max_tokens=100",
		// JSON, headers
		`{"password": "a\"b", "user": "me"}`: `{"password": "***", "user": "me"}`,
		`{"smtp":{"api_key":"abc"}}`:         `{"smtp":{"api_key":"***"}}`,
		`"{\"token\":\"abc\"}"`:              `"{\"token\":\"***\"}"`,
		"Authorization: Bearer abcdefgh.ijk": "Authorization: Bearer ***",
		"sent bearer abcdefgh.ijk":           "sent bearer ***",
		"token: must not be empty":           "token: must not be empty",
		"bearer of news":                     "bearer of news",
	} {
		if got := redact.Text(in); got != want {
			t.Errorf("%s\n is %s\nnot %s", in, got, want)
		}
	}
}

func TestURLsLeaveTheRest(t *testing.T) {
	const text = `{"token":"abc","url":"https://u:hunter2@a.example/?key=1&token=2"}`
	if got, want := redact.URLs(text), strings.Replace(text, "hunter2", "***", 1); got != want {
		t.Error(got)
	}
}

func TestURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://a.example/list?token=abc&x=1#y": "https://a.example/list?***#***",
		"https://me:pw@a.example:81/list":        "https://***@a.example:81/list",
		"https://token@a.example":                "https://***@a.example",
		"https://a.example/list":                 "https://a.example/list",
		"https://me:%zz@a.example/":              "***",
		"not a URL":                              "***",
	} {
		if got := redact.URL(in); got != want {
			t.Errorf("%s is %s, not %s", in, got, want)
		}
	}
}

func TestArgs(t *testing.T) {
	in := []string{"curl", "--token=abc", "-H", "X-Api-Key: abc", "--password", "abc", "--auth", "--verbose",
		"PGPASSWORD=abc",
		"https://u:abc@a.example/", "--key", "abc", "--rows=3", "{key}", "--token", "file:x"}
	want := []string{"curl", "--token=***", "-H", "X-Api-Key: ***", "--password", "***", "--auth", "--verbose",
		"PGPASSWORD=***",
		"https://u:***@a.example/", "--key", "***", "--rows=3", "{key}", "--token", "file:x"}
	if got := redact.Args(in); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestSecrets(t *testing.T) {
	const pem = "-----BEGIN KEY-----\r\nabcdefgh\nij\"klm\n-----END KEY-----\n"
	s := redact.New("hunter2", "hunter2-and-more", "unter", pem, "abc")
	for in, want := range map[string]string{
		"hunter2-and-more hunter2 abc": "*** *** abc",
		"log: abcdefgh":                "log: ***",
		`{"text":"ij\"klm"}`:           `{"text":"***"}`,
		"nothing":                      "nothing",
	} {
		if got := s.Hide(in); got != want {
			t.Errorf("%s is %s, not %s", in, got, want)
		}
	}
	if got := string(redact.New("12345").JSON([]byte(`{"pin":12345}`))); got != `"{\"pin\":***}"` {
		t.Error(got)
	}
	var none *redact.Secrets
	if none.Hide("x") != "x" || none.Text("token=x") != "token=***" {
		t.Error("nil hides")
	}
	err := s.Error(fmt.Errorf("hunter2: %w", fs.ErrNotExist))
	if err.Error() != "***: file does not exist" || !errors.Is(err, fs.ErrNotExist) || s.Error(nil) != nil {
		t.Error(err)
	}
}

// FuzzText: a secret in a place of secrets is in no text that was shown, with any text before and behind it.
func FuzzText(f *testing.F) {
	for _, secret := range []string{"hunter2", "a/b?c#d", "p@ss:w0rd", `q"uo'te`, "12/34", "x&y=z", "***more", "Bearer",
		`back\slash`, "%zz", "//twice//"} {
		f.Add("cannot open ", secret, ": refused")
	}
	f.Fuzz(func(t *testing.T, before, secret, behind string) {
		for _, place := range places {
			written, ok := place.write(secret)
			if !ok {
				continue
			}
			text := before + " " + fmt.Sprintf(place.text, written) + " " + behind
			// A value elsewhere may be the same by chance.
			if shown := redact.Text(text); strings.Count(shown, written) > strings.Count(redact.Mask+before+" "+
				fmt.Sprintf(place.text, redact.Mask)+" "+behind, written) {
				t.Errorf("%q\nshows %q\n as %q", text, written, shown)
			}
		}
	})
}

// places are where secrets stand, and how they are written there; ok is false where they cannot be.
var places = []struct {
	text  string
	write func(secret string) (written string, ok bool)
}{
	{"postgres://me:%s@db/work", unescapedPassword},
	{"mysql://me:%s@db", unescapedPassword},
	{"https://me:%s@a.example/x", func(s string) (string, bool) { return url.UserPassword("", s).String()[1:], s != "" }},
	{"https://a.example/?x=1&token=%s&y=2", func(s string) (string, bool) { return url.QueryEscape(s), notAFile(s) }},
	{"postgres://h/db?password=%s", func(s string) (string, bool) { return url.QueryEscape(s), notAFile(s) }},
	{"host=db password='%s' dbname=x", func(s string) (string, bool) {
		return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s), notAFile(s)
	}},
	{"host=db password=%s dbname=x", unquoted},
	{"run --token=%s --rows=3", unquoted},
	{"LEDGERD_KINDS_X_WITH_PASSWORD=%s", unquoted},
	{`smtp.password = %s`, func(s string) (string, bool) { return strconv.Quote(s), notAFile(s) }},
	{`{"secret":%s}`, func(s string) (string, bool) {
		raw, err := json.Marshal(s)
		return string(raw), err == nil && notAFile(s)
	}},
	{"Authorization: Basic %s", func(s string) (string, bool) {
		return base64.StdEncoding.EncodeToString([]byte(s)), s != ""
	}},
}

func notAFile(s string) bool { return s != "" && s != "…" && !strings.HasPrefix(s, "file:") }

// unquoted is what can stand without quotes.
func unquoted(s string) (string, bool) {
	return s, notAFile(s) && utf8.ValidString(s) && !strings.ContainsAny(s, "\\\"' \t\r\n")
}

// unescapedPassword is a password as people paste it into a URL.
func unescapedPassword(s string) (string, bool) {
	return s, s != "" && !strings.ContainsAny(s, "\"'<>` \t\r\n\f\v\\") && !strings.Contains(s, "://")
}

// FuzzSecrets: no value is in what was hidden, in none of the forms in which programs write it.
func FuzzSecrets(f *testing.F) {
	f.Add("abcd", "cdef", "abcdef and cdabcdef")
	f.Add("x***y", "hunter2", "xhunter2y")
	f.Add("a\"b\\c<d>", "****", `{"x":"a\"b\\c\u003cd\u003e"} *****`)
	f.Fuzz(func(t *testing.T, one, other, text string) {
		s := redact.New(one, other)
		for _, secret := range []string{strings.TrimSpace(one), strings.TrimSpace(other)} {
			if len(secret) < redact.Shortest {
				continue
			}
			quoted, err := json.Marshal(secret)
			must.OK(t, err)
			all := text + secret + strconv.Quote(secret) + string(quoted) + "?" + url.QueryEscape(secret)
			for _, shown := range []string{s.Hide(text), s.Hide(all), s.Text(all), string(s.JSON(object(t, all)))} {
				for _, form := range []string{secret, string(quoted[1 : len(quoted)-1]), url.QueryEscape(secret)} {
					if strings.Contains(shown, form) {
						t.Errorf("%q is in %q", form, shown)
					}
				}
			}
		}
	})
}

func object(t *testing.T, text string) []byte {
	raw, err := json.Marshal(map[string]string{"text": text})
	must.OK(t, err)
	return raw
}
