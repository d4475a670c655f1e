// Package inbox keeps mails instead of sending them, and shows them on a web page.
package inbox
