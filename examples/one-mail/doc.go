// Package onemail tests the sessions of README.md. The mails go to a real SMTP server, the catcher of this example.
package onemail
