// Package smtp sends mails to a mail server with SMTP. It reuses connections for
// several mails.
package smtp
