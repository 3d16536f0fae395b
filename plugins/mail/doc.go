// Package mail is the plugin that sends mails by SMTP, and never sends one twice by itself.
//
//	ledgerd run mail ann@example.com --set subject=Hello --set text='Good morning' \
//	    --with server=smtp.example.com:587 --with from=news@example.com \
//	    --with user=news --with password=file:/run/secrets/smtp
//	ledgerd add mail --scope spring --from users.csv --key id --set template=spring
//
// One item is one mail to one address, so that each can be counted, refused and tried again for itself. If the key is
// the user's ID, a user gets at most one mail in each scope. A scope is for example a campaign, an event or a day.
//
// # Payload: what is to be done (--set)
//
//	to        the address, "ann@example.com" or "Ann <ann@example.com>"
//	subject   one line, up to 900 bytes; runs of blanks become one
//	text      the text, as it stands
//	html      the text as HTML, as it stands; with text as well a reader's program chooses
//	template  name of a template, instead of text and html
//	data      the values of the template's fields: --set data.name=Ann, or a column data.name
//	attach    files to attach, paths below the folder of attachments: --set attach=a.pdf,b/c.png; at
//	          most 20
//	cc        who gets a copy, at most 50
//	bcc       recipients of a hidden copy, at most 50; in no header
//	reply_to  where answers go, if not to the sender
//	unsubscribe  where to sign off, https://… or mailto:…: the header List-Unsubscribe
//	one_click    true: a POST to unsubscribe signs off without another question, as in RFC 8058; large
//	             providers require it from bulk senders. The server must sign the mail (DKIM)
//
// To, cc and bcc get the mail in one transaction. If the server refuses one of them before the mail itself, none of
// them gets it, and the error names the address: smtp_5xx is dead, smtp_4xx is tried again, for all of them. A
// recipient who is to be counted and tried separately gets an item of their own.
//
// # Config: what this machine has (--with)
//
//	server         host:port
//	from           the sender, "news@example.com" or "Example News <news@example.com>"
//	tls            starttls (default), tls from the first byte, opportunistic, or none. With the
//	               first two certificates are checked and nothing is sent in the clear.
//	               opportunistic takes STARTTLS if it is offered, without a check of certificates:
//	               that protects against eavesdropping only
//	ca_file        certificates (PEM) to trust instead of the system's
//	user           to log in with; default none. Only to a loopback address with tls=none or opportunistic
//	password       secret; give it as file:/PATH
//	hello          name of this machine for EHLO; default its host name. Some servers want the full
//	               name, such as mail.example.com, and answer smtp_504 to localhost or a container's
//	templates      folder of templates, an absolute path
//	attachments    folder of files that may be attached, an absolute path
//	max_attach     bytes of all attachments of a mail; up to 104857600, default 10485760
//	maildir        folder that gets the mails instead of a server, an absolute path
//	timeout        for connecting, and again for a mail up to its last byte; 1s to 1h, default 1m
//	reply_timeout  for the answer to a whole mail; 1s to 1h, default 10m, as RFC 5321 asks for
//
// # Templates
//
// The template spring is the files spring.subject, spring.txt and spring.html of the folder, as far as they are there;
// a subject of the payload comes before spring.subject. They are Go templates over data: "Dear {{.name}}". spring.html
// is one of html/template, so it escapes by itself; the others are of text/template. A field that data does not have
// is an error. The files are read anew for every mail; text and html of the payload are never read as templates.
//
// # Attachments
//
// A path names a regular file below the folder of attachments. A path that leads out of the folder is refused, also
// through a symbolic link. The ending of the file name gives the type. Every attempt reads the files again, so do not
// change or remove them until the mail is done.
//
// # Trying out
//
// With maildir and no server the mails are written into a folder, one file each, that mail programs read as a Maildir.
// Everything else is the same as with a server. In the ledger these mails are done, so use a separate ledger.
//
//	ledgerd run mail --db sqlite:/tmp/try.db --from users.csv --key id --set template=spring \
//	    --with from=news@example.com --with templates=/srv/mails --with maildir=/tmp/try
//
// # Output
//
//	message_id  the mail's Message-ID, without its angle brackets
//	bytes       size of the mail
//	reply       what the server answered to it, or the file of a maildir
//
// # What is known of a mail
//
// SMTP ends a mail with a line that is a dot. If the server accepts it, the server has taken the mail. Until that line
// has left this machine in full, nothing was sent: after an error the mail can be tried again (see Codes). If it has
// left and no answer comes, the mail is in doubt: a person looks into the server's log for the Message-ID and decides.
// If the item is cancelled meanwhile (its lease is lost, ledgerd stops), the plugin still waits 3 s for the answer. If
// a server crashes before it has read the mail from its system's buffers, the mail is in doubt, too: TCP does not
// report this.
//
// If the plugin's process dies, the mails that it has begun are in doubt (on_lost is doubt). ledgerd claims no more
// mails than it can begin at once. The Message-ID is made of the idempotency key and the payload, so it is the same
// for every attempt at a mail. A mailbox that drops duplicates drops the second of two.
//
// Done means that the server has taken the mail. Later events, such as a bounce, come by mail to the sender.
//
// # Codes
//
// Tried again after 5 s, then each time after three times as long, up to half an hour. Dead after ten failures, about
// two hours (ledgerd kind set mail --max-failures):
//
//	connect     no connection, or no greeting on it
//	tls         no agreement on TLS, or the server does not offer STARTTLS
//	auth        the server does not let the user in
//	timeout     no answer within timeout, before the mail had ended
//	broken      the connection broke before the mail had ended
//	template    a template is missing or cannot be read: another machine may have it
//	attachment  so is a file to attach, or the system cannot read it now
//	maildir     the folder cannot be written to
//	smtp_4xx    the server refuses the mail for now, by number, such as smtp_451
//	smtp_5xx    the server refuses the sender, a setting, in answer to MAIL, except by smtp_552;
//	            or it refuses the login, TLS or the name in EHLO at any step: smtp_504, smtp_530,
//	            smtp_535 and smtp_538; smtp_504 in answer to RCPT only if it names HELO
//
// Dead at once:
//
//	smtp_5xx     the server refuses it for good, by number, such as smtp_550
//	bad_address  to, cc, bcc or reply_to is no address, or one that could end a command or a header
//	bad_mail     there is no text or no subject, or what is there cannot be sent
//	template     data does not have what the template asks for, or it makes more than 10 MiB
//	attachment   what is to be attached is no file below the folder, or more than max_attach
//
// In doubt:
//
//	no_answer  the whole mail was sent, and no answer came
package mail
