// Package render fills in the templates of mails. It limits the resources that a
// template and the sender's HTML can use.
package render
