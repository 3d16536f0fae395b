// Package onemail tests the example of README.md with real processes on both databases: three programs
// that look whether a mail was sent, send it and note it, and what ledgerd does in their place. The
// mails go to a real SMTP server, which is the catcher of this example.
package onemail
