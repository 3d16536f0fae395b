package urlcheck

import (
	"context"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/ledgerd/ledgerd/plugins/internal/web"
	"github.com/ledgerd/ledgerd/sdk"
)

const doc = `Checks that URLs answer: status, redirects, certificate, response time.

    ledgerd run urlcheck links.txt
    ledgerd run urlcheck links.txt --set accept=200-299,401
    ledgerd run urlcheck intranet.txt --with allow_private=true

Asks with HEAD and, where that is refused, with GET; follows up to 10 redirects; at most two
checks at a time per host. A URL that is not accepted has failed with its class as code:
` + "`http_404`, `no_such_host`, `tls_expired`, `timeout`, `private_address`" + ` and so on. It is tried
again where that can help, after ` + "`Retry-After`" + ` if the server asks for it.

After a 429 the host rests for a second, but for checks whose turn is set. For a host with a strict limit, set ` + "`interval`" + `.
Only the URL that got the 429 waits for ` + "`Retry-After`" + `; the fourth 429 in a row is a
failure of the URL. Other URLs of the host wait for their turns in the order in which they came:
such an attempt ends as snoozed before anything is asked. That is no failure, and uses up none of max_failures.

Addresses that are not public are refused unless ` + "`allow_private`" + ` is set.
`

// Config is what this machine allows. The package comment explains it.
type Config struct {
	AllowPrivate bool          `json:"allow_private" default:"false" doc:"also check private, loopback and other special addresses"`
	PerHost      int           `json:"per_host" tune:"true" default:"2" schema:"min=1,max=1000" doc:"checks at a time per host"`
	Interval     time.Duration `json:"interval" tune:"true" default:"0s" doc:"shortest time between two requests to a host, up to 1m"`
	Deadline     time.Duration `json:"deadline" tune:"true" default:"30s" doc:"for one URL, redirects included, waiting for the host's turn not; 100ms to 10m"`
	MaxBody      int64         `json:"max_body" tune:"true" default:"1048576" schema:"min=0,max=1073741824" doc:"bytes of a body that are read"`
	Proxy        string        `json:"proxy" tune:"true" default:"" doc:"URL of a proxy: http, https or socks5; the environment is never looked at"`
	UserAgent    string        `json:"user_agent" tune:"true" default:"ledgerd-urlcheck/0.1 (+https://github.com/ledgerd/ledgerd)" schema:"pattern=^[ -~]+$" doc:"sent with every request"`

	checker *checker
}

// In is what is to be done.
type In struct {
	URL    string   `json:"url" input:"url" doc:"what to check, http or https"`
	Accept []string `json:"accept" default:"[\"200-299\"]" schema:"minItems=1,pattern=^[1-9][0-9]{2}(-[1-9][0-9]{2})?$" doc:"status codes that are fine, such as 404 or 200-299"`
}

// Out is what a check found, whether the URL was accepted or not.
type Out struct {
	Status        int     `json:"status,omitempty" doc:"of the answer; absent if the last request got none"`
	FinalURL      string  `json:"final_url,omitempty" doc:"the URL asked last, after redirects"`
	Method        string  `json:"method,omitempty" doc:"HEAD or GET: which one decided"`
	Protocol      string  `json:"protocol,omitempty" doc:"HTTP/1.1 or HTTP/2.0"`
	ContentType   string  `json:"content_type,omitempty" doc:"by the server"`
	ContentLength *int64  `json:"content_length,omitempty" doc:"bytes, absent if unknown"`
	ResponseMS    float64 `json:"response_ms,omitempty" doc:"milliseconds from the last request to its answer's headers"`
	Redirects     []Hop   `json:"redirects,omitempty" doc:"the hops before final_url"`
	TLS           *Cert   `json:"tls,omitempty" doc:"the certificate of the last https answer, or the one that was refused"`
	Note          string  `json:"note,omitempty" doc:"what was odd and did not decide"`
}

// Hop is one redirect.
type Hop struct {
	URL    string `json:"url" doc:"what was asked"`
	Status int    `json:"status" doc:"the redirect that it answered"`
}

// Cert is a server's certificate, in short.
type Cert struct {
	DaysLeft int       `json:"days_left" doc:"whole days until it expires, negative if it has"`
	NotAfter time.Time `json:"not_after" doc:"when it expires"`
	Names    []string  `json:"names,omitempty" doc:"whom it is for, at most 10"`
	Issuer   string    `json:"issuer,omitempty" doc:"who signed it"`
}

// Validate refuses what cannot work, before the first item.
func (c *Config) Validate() error {
	if c.Interval < 0 || c.Interval > time.Minute {
		return fmt.Errorf("interval: %s is not between 0s and 1m", c.Interval)
	}
	return c.reach().Validate()
}

func (c *Config) reach() web.Reach {
	return web.Reach{
		AllowPrivate: c.AllowPrivate, Proxy: c.Proxy, Deadline: c.Deadline,
		PerHost: c.PerHost, Interval: c.Interval, UserAgent: c.UserAgent,
	}
}

// Open makes the pool of connections that all items share. net/http logs unexpected answers of servers, up to 4 KiB
// each, with the standard logger. They must not be on stderr, and nothing else in this process uses that logger.
func (c *Config) Open(context.Context) (err error) {
	log.SetOutput(io.Discard)
	c.checker, err = newChecker(c)
	return err
}

// Close ends idle connections.
func (c *Config) Close() error {
	c.checker.Transport.CloseIdleConnections()
	return nil
}

// Plugin is the urlcheck plugin. It needs no timeout of its own: every check ends by its
// deadline.
func Plugin() *sdk.Plugin {
	p := sdk.New("urlcheck", "0.1.0", work)
	p.Doc = doc
	p.Concurrency = 64
	return p
}

func work(ctx context.Context, cfg *Config, it sdk.Item[In]) (Out, error) {
	out, err := cfg.checker.check(ctx, it.Payload)
	return out, web.Report(err)
}
