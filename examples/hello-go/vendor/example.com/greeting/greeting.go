// Package greeting returns greetings.
package greeting

// From returns a greeting in the name of who.
func From(who string) string { return "hello from " + who }
