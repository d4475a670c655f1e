// Package inbox stores mails instead of sending them. It shows them on a web page.
package inbox
