// Command dew-sftp serves files over SFTP on its input and output, inside a container,
// as the user and with the permissions of the app. It is a separate program, because
// dew-init stays resident in every container: with the protocol, dew-init would be
// almost twice as large.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// stdio combines both streams of a process.
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

// serve handles requests until the client has no more. Relative paths start at the
// working directory of the process, which needs no option. The library's own option
// would make the targets of new links absolute.
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
