// Package directory answers who receives a notification: dew's own users, or those of a platform elsewhere.
package directory
