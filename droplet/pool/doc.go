// Package pool stores the files that users push: it reads uploads and stores them as
// trees that are named after their content. Clients need not send files again that are
// already in the pool.
package pool
