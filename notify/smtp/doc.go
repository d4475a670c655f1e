// Package smtp sends mails to a mail server.
package smtp
