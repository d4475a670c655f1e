// Package delivery stores notifications until they are delivered: the Queue has one Message
// for each recipient, the Courier carries them to a Post.
package delivery
