package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"
)

// emptyFolders are the folders of a droplet that an image does not need.
var emptyFolders = []string{"./tmp", "./logs"}

// WriteDroplet writes the tar of an image as a droplet of Cloud Foundry: all names start
// with ./, and there are folders for temporary files and logs.
func WriteDroplet(w io.Writer, image io.Reader) error {
	from, to := tar.NewReader(image), tar.NewWriter(w)
	missing := map[string]bool{}
	for _, name := range emptyFolders {
		missing[name] = true
	}
	for {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("cannot read the image: %w", err)
		}
		h.Name = dotted(h.Name)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = dotted(h.Linkname)
		}
		delete(missing, strings.TrimSuffix(h.Name, "/"))
		if err := to.WriteHeader(h); err != nil {
			return fmt.Errorf("cannot write the droplet: %w", err)
		}
		if _, err := io.Copy(to, from); err != nil {
			return fmt.Errorf("cannot write the droplet: %w", err)
		}
	}
	for _, name := range emptyFolders {
		if !missing[name] {
			continue
		}
		if err := to.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, Uid: userID, Gid: userID}); err != nil {
			return fmt.Errorf("cannot write the droplet: %w", err)
		}
	}
	return to.Close()
}

// userID is the user of apps in droplets.
const userID = 2000

func dotted(name string) string { return "./" + strings.TrimPrefix(name, "./") }
