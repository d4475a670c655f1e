// Package pool keeps the files that users push: it reads uploads and stores them as
// trees that are named after their content. Files that are already in the pool need
// not be sent again.
package pool
