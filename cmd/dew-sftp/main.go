// Command dew-sftp serves files over SFTP on its input and output, inside a
// container, as the user and with the rights of the app there. It is a program
// of its own, and not a face of dew-init, because that one stays resident in
// every container: with the protocol in it, it would be almost twice as large.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// stdio is both of a process's streams as one.
type stdio struct {
	io.Reader
	io.WriteCloser
}

func main() {
	if err := serve(stdio{os.Stdin, os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "dew-sftp:", err)
		os.Exit(1)
	}
}

// serve answers until the client has no more requests. Relative paths begin at
// the folder that the process was started in: nothing has to be said for that,
// and the library's own way would make the targets of new links absolute.
func serve(c io.ReadWriteCloser) error {
	s, err := sftp.NewServer(c)
	if err != nil {
		return fmt.Errorf("cannot begin: %w", err)
	}
	if err := s.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot go on: %w", err)
	}
	return nil
}
