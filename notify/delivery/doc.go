// Package delivery stores notifications until they are delivered. The Queue has one
// Message for each recipient, and the Courier sends them through a Mailer.
package delivery
