// Package directory finds the recipients of a notification. They are dew's own users,
// or the users of a remote platform.
package directory
