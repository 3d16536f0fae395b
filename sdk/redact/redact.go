// Package redact hides secrets in texts that people and logs get to see.
//
// There are two ways, and both are needed. A [Secrets] knows values: it hides each of them wherever it
// occurs, also escaped as in JSON, URLs and quoted texts. [Text] knows no values: it hides the text in
// places where secrets stand (the password of a URL, what follows "password=" or "Bearer").
//
// Everything that ledgerd prints of URLs, settings, commands and errors goes through this package. It
// imports only internal/lazyregexp of ledgerd, so plugins may use it as well.
package redact

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// Mask stands in place of a hidden value.
const Mask = "***"

// secretWord matches the words in the name of a secret.
const secretWord = `(?:pass(?:word|wd|phrase|code)?|pasw(?:or)?d|pwd|secret|token|credentials?|(?:api|access|private|secret|account)[_-]?key|signature)`

var (
	secretName = lazyregexp.New(`(?i)pass|pasw|pwd|secret|token|key|cred|auth`)
	// assigned matches the name of a secret and the "=" behind it, in a DSN, a query string, a flag or a variable.
	assigned = lazyregexp.New(`(?i)(^|[^\w.-])((?:-{1,2})?[\w.-]*` + secretWord + `|key|sig|auth)(\s*=\s*)`)
	// member matches the name of a secret and its value in JSON.
	member = lazyregexp.New(`(?i)("[^"\\]*` + secretWord + `"\s*:\s*")((?:[^"\\]|\\.)*)`)
	// quotedMember is the same in JSON that stands in a string of other JSON.
	quotedMember = lazyregexp.New(`(?i)(\\"[^"\\]*` + secretWord + `\\"\s*:\s*\\")((?:[^"\\]|\\\\(?:\\.|[^"\\]))*)`)
	// header matches a request's header with credentials.
	header = lazyregexp.New(`(?i)(\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token|digest)\s+)?)[^\s"',]+`)
	bearer = lazyregexp.New(`(?i)(\bbearer\s+)[\w.~+/=-]{8,}`)
	// headerArg matches an argument that is a header with credentials from its beginning to its end.
	headerArg = lazyregexp.New(`(?i)^([\w-]*(?:auth|token|key|secret|cookie|pass)[\w-]*:\s*).+`)
)

// SecretName reports whether a value with this name may be a secret.
func SecretName(name string) bool { return secretName().MatchString(name) }

// Text hides values in the places of secrets: the passwords of URLs and of similar texts; values that
// are assigned to names of secrets (password=, token=, in query strings also key=); members of JSON with
// such a name ("password":"…"); what follows "Authorization:" or "Bearer". A value that names a file
// (password=file:PATH) stays.
func Text(text string) string {
	text = URLs(text)
	text = header().ReplaceAllString(text, "${1}"+Mask)
	text = bearer().ReplaceAllString(text, "${1}"+Mask)
	for _, form := range []*regexp.Regexp{member(), quotedMember()} {
		text = form.ReplaceAllStringFunc(text, func(found string) string {
			parts := form.FindStringSubmatch(found)
			if kept(parts[2]) {
				return found
			}
			return parts[1] + Mask
		})
	}
	return assignments(text, func(name string, inQuery bool) bool {
		return inQuery || !onlyInQuery[strings.ToLower(name)]
	})
}

// onlyInQuery are names that mean a secret only in a query string.
var onlyInQuery = map[string]bool{"key": true, "sig": true, "auth": true, "pass": true}

// URLs hides the passwords of URLs in a text, and nothing else: what stands between "user:" and "@", and
// a parameter "password".
func URLs(text string) string {
	return assignments(userinfo(text), func(name string, inQuery bool) bool {
		return inQuery && strings.HasSuffix(strings.ToLower(name), "password")
	})
}

// assignments hides the values that are assigned to names for which secret is true.
func assignments(text string, secret func(name string, inQuery bool) bool) string {
	var b strings.Builder
	for {
		at := assigned().FindStringSubmatchIndex(text)
		if at == nil {
			b.WriteString(text)
			return b.String()
		}
		lead, name, from := text[at[2]:at[3]], text[at[4]:at[5]], at[1]
		inQuery := lead == "?" || lead == "&"
		end := from + valueEnd(text[from:], inQuery)
		value := text[from:end]
		if !secret(name, inQuery) || value == "" || kept(strings.Trim(value, `"'`)) {
			b.WriteString(text[:from])
			text = text[from:]
			continue
		}
		b.WriteString(text[:from] + Mask)
		text = text[end:]
	}
}

// kept reports whether a value need not be hidden: the name of a file with the secret, or a value
// that is hidden already.
func kept(value string) bool {
	return value == "" || value == Mask || value == "…" || strings.HasPrefix(value, "file:")
}

// valueEnd is where a value ends: at the closing quote, in a query string at the next parameter, else
// at a space.
func valueEnd(text string, inQuery bool) int {
	if inQuery {
		if i := strings.IndexAny(text, "&# \t\r\n\"'<>`"); i >= 0 {
			return i
		}
		return len(text)
	}
	quote := byte(0)
	if text != "" && (text[0] == '"' || text[0] == '\'') {
		quote = text[0]
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case quote == 0 && strings.IndexByte(" \t\r\n", c) >= 0:
			return i
		case quote != 0 && i > 0 && c == quote:
			return i + 1
		}
	}
	return len(text)
}

// databases matches schemes of databases. In their URLs digits before an "@" are a password, not a port.
var databases = lazyregexp.New(`(?i)\b(postgres|postgresql|mysql|mariadb|sqlserver|mongodb|redis|rediss|amqp|amqps)(\+\w+)?:$`)

// userinfo hides the password between "//user:" and the last "@" of the word, also in an improper URL:
// an unescaped password may have every character but a space in it.
func userinfo(text string) string {
	var b strings.Builder
	for {
		i := strings.Index(text, "//")
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		scheme := text[:i]
		b.WriteString(text[:i+2])
		text = text[i+2:]
		ofDatabase := databases().MatchString(scheme)
		word := text[:wordEnd(text, ofDatabase)]
		user, password, found := strings.Cut(word, ":")
		at := strings.LastIndexByte(password, '@')
		if !found || at < 0 || strings.ContainsAny(user, "/?#@[") {
			continue
		}
		if !ofDatabase && portFirst().MatchString(password) {
			continue
		}
		if at == 0 { // "token:@host": then the user is the secret
			user = Mask
		}
		b.WriteString(user + ":" + Mask)
		text = text[len(word)-len(password)+at:]
	}
}

var (
	wordBreak = lazyregexp.New("[\\s\"'<>`]")
	nextURL   = lazyregexp.New(`,?[A-Za-z][A-Za-z0-9+.-]*://`)
	// portFirst matches the text behind a colon if it begins with a port: then there is no password.
	portFirst = lazyregexp.New(`^[0-9]{0,5}([/?#]|$)`)
)

// wordEnd is the end of a URL in a text: at a space or a quote, or where the next URL begins. In the URL of
// a database, text that looks like the next URL may be part of the password.
func wordEnd(text string, ofDatabase bool) int {
	end := len(text)
	if at := wordBreak().FindStringIndex(text); at != nil {
		end = at[0]
	}
	if at := nextURL().FindStringIndex(text[:end]); at != nil && !ofDatabase {
		end = at[0]
	}
	return end
}

// URL hides the user, the query and the fragment of a URL. It keeps scheme, host and path.
func URL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return Mask
	}
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != nil {
		b.WriteString(Mask + "@")
	}
	b.WriteString(u.Host + u.EscapedPath())
	if u.RawQuery != "" {
		b.WriteString("?" + Mask)
	}
	if u.Fragment != "" {
		b.WriteString("#" + Mask)
	}
	return b.String()
}

// Args hides secrets in a command with its arguments: the value of a flag with the name of a secret
// (--token=X, --token X), the value of a header, and all that Text hides.
func Args(args []string) []string {
	shown := make([]string, len(args))
	for i, arg := range args {
		name, value, assigned := strings.Cut(arg, "=")
		switch before := i > 0 && flagOfSecret(args[i-1]); {
		case before && !strings.HasPrefix(arg, "--") && !kept(arg):
			shown[i] = Mask
		case assigned && (flagOfSecret(name) || variable().MatchString(name) && SecretName(name)) && !kept(value):
			shown[i] = name + "=" + Mask
		case headerArg().MatchString(arg) && !strings.Contains(arg, "://"):
			shown[i] = headerArg().ReplaceAllString(arg, "${1}"+Mask)
		default:
			shown[i] = Text(arg)
		}
	}
	return shown
}

var variable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// flagOfSecret reports whether arg is a flag, without a value, that is named like a secret: --token.
func flagOfSecret(arg string) bool {
	return strings.HasPrefix(arg, "-") && !strings.ContainsAny(arg, "= ") && secretFlag().MatchString(arg)
}

var secretFlag = lazyregexp.New(`(?i)^-{1,2}[\w.-]*(?:` + secretWord + `|auth|key)$`)
