// Package mainfile is the file through which PID 1 of a container gets the main process
// that it starts, and in which it reports the start and the exit. dewd writes the request
// before the container starts. The reports are in a file because they must be there for
// the next dewd, whatever was killed in between.
//
// dew-init imports this package, so it imports little.
package mainfile
