// Package urlcheck is the plugin that finds out which links of a list still work.
//
//	ledgerd run urlcheck links.txt
//	ledgerd run urlcheck https://example.com/a https://example.com/b
//	ledgerd run urlcheck links.txt --set accept=200-299,401
//	ledgerd run urlcheck intranet.txt --with allow_private=true --with per_host=8
//
// # What a check does
//
// The URL is asked with HEAD. If the answer is a redirect, or is accepted and no error, that is it.
// GET decides after any other answer (also a 4xx or 5xx that accept names), a broken one, or none
// in a third of the deadline on a good connection, because many servers answer HEAD wrongly. A
// server that answers 429 or sends Retry-After is not asked again. Redirects 301, 302, 303, 307 and
// 308 are followed, at most 10, unless their status is accepted: accept=301 checks that a redirect
// is there. The status decides, not the body: GET reads the body up to max_body and throws it away,
// and what goes wrong there is a note in the output. A body announced as longer is not read at all.
//
// Cookies that a server sets are kept until the end of the redirects and sent as browsers do; no check has those
// of another. Bodies are not decompressed, scripts not run. A user and password in the
// URL are sent as Basic authorization to that URL, and to redirects on the same host and port or
// from http to https there; output and messages hide the password.
//
// # Payload: what is to be done (--set)
//
//	url     the URL, http or https
//	accept  status codes that are fine, "404" or "200-299"; default 200-299
//
// # Config: what this machine allows (--with)
//
//	allow_private  also check private, loopback and other special addresses; default false
//	per_host       checks at a time per host; 1 to 1000, default 2
//	interval       shortest time between two requests to a host; up to 1m, default 0s
//	deadline       for one URL, redirects and both methods included, waiting for the host's
//	               turn not; 100ms to 10m, default 30s
//	max_body       bytes of a body that are read, 0 to 1 GiB; default 1048576
//	proxy          URL of a proxy: http, https or socks5; default none. The environment
//	               (HTTP_PROXY) is never looked at
//	user_agent     sent with every request
//
// # Output
//
// The output is there for failed URLs, too, as far as the check came.
//
//	status          of the answer; absent if the last request got none
//	final_url       the URL asked last, after redirects
//	method          HEAD or GET: which one decided
//	protocol        HTTP/1.1 or HTTP/2.0
//	content_type    by the server
//	content_length  bytes, as announced or, for a GET without, as read; absent if unknown
//	response_ms     milliseconds from the last request to its answer's headers
//	redirects       the hops before final_url, each with url and status
//	tls             of the last https answer, or of the certificate that was refused:
//	                days_left, not_after, names (at most 10), issuer
//	note            what was odd and did not decide, such as a body over max_body
//
// # Codes
//
// A URL that is not accepted has failed, and the code is the class. Tried again by the
// policy of the kind, because that can help:
//
//	dns           the name could not be looked up just now
//	timeout       no answer within the deadline, or no connection within 10 s
//	refused       no program listens there
//	reset         the connection ended before an answer came
//	unreachable   no route to the host or network
//	network       another error of this machine's network, such as no free port
//	proxy         the proxy refuses or cannot be reached
//	http_5xx      by number, such as http_503; also http_408, http_425 and http_429.
//	              Retry-After, or the reset of a limit that is exhausted (X-RateLimit-Reset),
//	              puts the URL off for up to a day, with http_403, too; that is a snooze for
//	              the first three times in a row, then a failure
//
// Dead at once, because trying again would end the same way:
//
//	http_NNN            any other status, such as http_404
//	no_such_host        the name does not exist
//	tls_expired         the certificate has expired or is not valid yet
//	tls_hostname        the certificate is for other names
//	tls_untrusted       signed by no authority that is trusted here
//	tls                 any other failure to agree on TLS
//	too_many_redirects  more than 10
//	redirect_loop       a redirect leads back to where the check has been, with the same
//	                    cookies; the error names it
//	bad_redirect        a redirect to nowhere, or to something that is not http or https
//	private_address     an address that is not public; see allow_private
//	bad_url             not a URL that can be checked
//	bad_response        what came was not HTTP, or had more than 256 KiB of headers
//	bad_accept          accept cannot be understood
//
// # Private addresses
//
// A list of links may come from strangers, and the machine that checks it may see what they
// cannot: routers, databases, the cloud's metadata service. So the address is judged in the
// moment of dialling, after every look-up and for every redirect; a name that changes its
// address in between gains nothing. Public is what IANA lists as global unicast; IPv4 inside
// IPv6 (mapped, NAT64) is judged by the IPv4 address. With a proxy the proxy looks names up
// and dials, so here only addresses that stand in the URL can be judged, and the rest is the
// proxy's duty.
//
// # Politeness
//
// A host is a name with a port. per_host and interval hold for all items of the process; several
// processes have a limit each. The kind limits what all machines do together: "ledgerd kind set
// urlcheck --max-running-per-shard-key 2 --rate-per-shard-key 1/s", the shard key being the host. A
// check keeps its place at the host while it stays there, from HEAD to GET and from one redirect to
// the next.
//
// A host that refuses (429, or Retry-After with 408, 425 or 5xx) rests for a second after each refusal. Then it is
// asked at full pace again. Only the URL that was refused waits for its whole Retry-After, and its fourth refusal in a
// row is a failure. For a host with a strict limit, set interval or a rate of the kind.
//
// A list is often sorted by host, and items that wait occupy places that other hosts could use. So a
// check whose turn is likely to come within a second waits in place, and any other is snoozed until
// its turn is due. Each gets a time of its own, in the host's measured pace. Turns more than a minute
// ahead are 10 ms apart from there on, because the pace may change; a check that comes back too early
// is put off again, in the same order. So first come is first served. A snooze is not a failure and uses
// up none of max_failures. It is an attempt of the item nonetheless: the plugin has been asked, and the
// history tells why the URL waited. An attempt that is handed back unstarted (released) would be due at
// once, as it has no delay. The check starts from the beginning when it comes back. A check that has its
// place waits for interval in place.
package urlcheck
