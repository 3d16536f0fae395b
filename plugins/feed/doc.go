// Package feed is the plugin that reads feeds and makes an item of every new entry.
//
//	ledgerd run feed https://example.com/blog.xml
//	ledgerd add feed feeds.txt --every 1h
//	ledgerd claim article --agent ann --limit 5
//
// # What a round does
//
// The feed (RSS 0.9 to 2.0, Atom 0.3 and 1.0, JSON Feed 1.0 and 1.1) is fetched with GET. Every entry is emitted as an
// item of kind article in the scope feed/ID; ID is the feed's item. The key is the entry's own id (guid, id); without
// one its link; without a link the hash of its content. RSS entries without a guid that have the same link in one
// document get the hash, too; one that was once alone with its link, or is later, becomes an article once more. The
// link of an RSS entry without one is its guid, if that is a URL and isPermaLink is not false. A file that comes with
// the entry is its link only if there is nothing else.
//
// So an entry becomes an article only once. It does not matter how often the feed is read, where it moves, or what
// happens to the article. A later change of the entry makes no new article, unless its key is a hash. The article is
// added in the transaction that records the round: there is no moment at which one is done and the other is not. People
// (ledgerd claim article) or a plugin of that name work on articles. In the first round all entries are new.
//
// A feed is read again when its item recurs (--every 1h). After that the server is asked only for changes: its version
// (ETag, Last-Modified) is sent back to the URL that gave it. A feed with the same bytes as before counts as
// unchanged, too. A round without changes is skipped. The version is stored in the output of the last completed round,
// so the next round has it on any machine. The output of a failed round is not used.
//
// If a feed breaks off in the middle, its complete entries are emitted. The note reports it. The version is not
// stored, so the next round reads the whole feed. A connection that breaks off is a failure (reset).
//
// A feed that is not UTF-8 and declares no character set is read as is usual for its language, else as windows-1252;
// the note reports it.
//
// Redirects are followed, at most 10. A target that only 301 and 308 lead to is stored as moved_to, once a feed was
// read there. Later rounds ask it first. If it fails permanently, the given URL is asked again. URLs with a password
// are not stored.
//
// A host is a name with a port. Few feeds of a host are fetched at a time. A host that refuses rests for a second
// (see the plugin urlcheck). Only the feed that was refused waits for its Retry-After. Cookies are kept until the end
// of the redirects. A feed that would have to wait for its host longer than a second is snoozed. These limits hold for
// one process. To limit all machines together, set limits of the kind (ledgerd kind set feed
// --max-running-per-shard-key 2).
//
// # Payload: what is to be done (--set)
//
//	url  the feed, http or https. A user and password in it are sent as Basic authorization,
//	     also to redirects on the same host and port, or from http to https there
//
// # Config: what this machine allows (--with)
//
//	allow_private  also read feeds at private, loopback and other special addresses; default
//	               false. The rules are those of the plugin urlcheck
//	per_host       feeds at a time per host; 1 to 1000, default 2
//	deadline       for one feed, redirects and reading included; 100ms to 10m, default 1m
//	max_body       bytes that a feed may have, unpacked; 1 KiB to 64 MiB, default 8388608
//	proxy          URL of a proxy: http, https or socks5; default none. The environment
//	               (HTTP_PROXY) is never looked at
//	user_agent     sent with every request
//
// # Output
//
// A failed round has an output, too, with the fields that were known by then.
//
//	status         of the answer: 200, or 304 if nothing has changed
//	final_url      the URL that answered, after redirects; passwords are hidden
//	moved_to       where the feed has moved for good
//	etag           version of what was read, in the server's words
//	last_modified  the same as a date
//	digest         SHA-256 of what was read
//	format         such as "rss 2.0", "atom 1.0" or "json 1.1"
//	title          of the feed
//	entries        that it had when it was last read
//	bytes          that were read, unpacked
//	note           what was odd and did not matter
//
// # The article's payload
//
//	feed, feed_title    where it is from; passwords are hidden
//	id, link, title     of the entry; a relative link is completed by final_url
//	authors, tags       lists of names
//	published, updated  RFC 3339, in UTC
//	summary, content    as the feed has them, often HTML. Strangers wrote it: clean it
//	                    before a browser shows it
//	files               url and type of what it brings along
//	cut                 true: texts were left out, since an article may have 512 KiB and all
//	                    of one round together 8 MiB; the link has the rest
//
// # Codes
//
// Tried again within the round by the policy of the kind, because that can help:
//
//	dns          the name could not be looked up just now
//	timeout      the deadline was over
//	refused      no program listens there
//	reset        the connection ended before the feed did
//	unreachable  no route to the host or network
//	network      another error of this machine's network, such as no free port
//	proxy        the proxy refuses or cannot be reached
//	http_5xx     by number, such as http_503; also http_408, http_425 and http_429.
//	             Retry-After, or the reset of a limit that is exhausted (X-RateLimit-Reset),
//	             is honoured up to a day, past the next round, with http_403, too
//
// Failed for good, until the next round of a feed that recurs:
//
//	http_NNN            any other status, such as http_404. http_410 is a server that wants
//	                    the feed is gone: ledgerd cancel
//	not_a_feed          something else is there; of a web page the error names its feed
//	bad_feed            a feed that cannot be read; the error names the place
//	bad_charset         a character set that is not known
//	bad_encoding        packed in a way that was not asked for
//	too_large           over max_body, 10,000 entries, 500,000 parts or a depth of 100
//	no_such_host        the name does not exist
//	tls_expired         the certificate has expired or is not valid yet
//	tls_hostname        the certificate is for other names
//	tls_untrusted       signed by no authority that is trusted here
//	tls                 any other failure to agree on TLS
//	too_many_redirects  more than 10
//	redirect_loop       a redirect leads back to where it came from
//	bad_redirect        a redirect to nowhere, or to something that is not http or https
//	private_address     an address that is not public; see allow_private
//	bad_url             not a URL that can be asked for
//	bad_response        what came was not HTTP, or had more than 256 KiB of headers
//
// # Hostile feeds
//
// max_body limits the unpacked body, so it also stops a small body that unpacks to gigabytes. Document type
// declarations are cut off before parsing. Entities and URLs in a feed are never followed. The parts of a document and
// their depth are counted before it is parsed. The parser stops at the deadline. In HTML of Atom relative links are
// completed by xml:base. A text whose unclosed elements could make all HTML of the feed grow by more than 256 MiB
// stays as it is.
package feed
