// Package greeting greets.
package greeting

// From is a greeting in somebody's name.
func From(who string) string { return "hello from " + who }
