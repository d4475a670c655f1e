// Package render fills in the templates of mails, with bounds for what a template and
// the sender's HTML can cost.
package render
