package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Error says which entry of an image is refused and why.
type Error struct {
	Entry  string // empty: the archive as a whole
	Reason string
}

func (e *Error) Error() string {
	if e.Entry == "" {
		return "the image " + e.Reason
	}
	return fmt.Sprintf("image entry %q %s", e.Entry, e.Reason)
}

// imageDirs are the folders of an image, as in Cloud Foundry.
var imageDirs = []string{"app", "deps", "profile.d", "logs", "tmp"}

// StagingInfo is the only file next to these folders.
const StagingInfo = "staging_info.yml"

// maxNames limits the total length of the names in an image, because they are in memory
// while it is read.
const maxNames = 64 << 20

// CheckImage reads a tar to its end. It refuses a tar that does not unpack exactly as
// listed, inside the folders of an image.
func CheckImage(r io.Reader) error {
	src := &endReader{r: r}
	tr := tar.NewReader(src)
	tree := imageTree{}
	for left := maxNames; ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return checkEnd(src)
		}
		if src.err != nil {
			return fmt.Errorf("cannot read the image: %w", src.err)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &Error{Reason: "is incomplete: upload it again"}
		}
		if err != nil {
			return &Error{Reason: "is not a tar archive: " + err.Error()}
		}
		if left -= len(h.Name) + len(h.Linkname); left < 0 {
			return &Error{Reason: fmt.Sprintf("has file names with a total length of more than %s", Size(maxNames))}
		}
		if err := tree.add(h); err != nil {
			return err
		}
	}
}

// checkEnd reads the bytes after the last entry. The library treats the end of the
// stream as the end of the archive. Without this check, an image that was cut between
// two entries would look complete.
func checkEnd(src *endReader) error {
	if src.ended {
		return &Error{Reason: "is incomplete: its end marker is missing (upload it again)"}
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if slices.ContainsFunc(buf[:n], func(b byte) bool { return b != 0 }) {
			return &Error{Reason: "has data after its end"}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read the image: %w", err)
		}
	}
}

// endReader remembers whether it has reached the end or an error.
type endReader struct {
	r     io.Reader
	ended bool
	err   error
}

func (e *endReader) Read(p []byte) (int, error) {
	if e.ended {
		return 0, io.EOF
	}
	n, err := e.r.Read(p)
	if errors.Is(err, io.EOF) && n > 0 {
		return n, nil // the next read, with no bytes, reaches the end
	}
	if errors.Is(err, io.EOF) {
		e.ended = true
		return 0, io.EOF
	}
	if err != nil {
		e.err = err
	}
	return n, err
}

// imageTree holds the type of every entry so far by its path.
type imageTree map[string]byte

func (t imageTree) add(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // it describes nothing that is unpacked
	}
	name := h.Name
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
	}
	reason := t.refuse(h, name)
	if reason != "" {
		return &Error{Entry: h.Name, Reason: reason}
	}
	t[name] = h.Typeflag
	for dir := path.Dir(name); dir != "." && t[dir] == 0; dir = path.Dir(dir) {
		t[dir] = tar.TypeDir // unpacking creates it
	}
	return nil
}

// refuse returns the reason why an entry cannot be in the tree, or nothing.
func (t imageTree) refuse(h *tar.Header, name string) string {
	if reason := refusePath(name); reason != "" {
		return reason
	}
	if slices.Contains(imageDirs, name) && h.Typeflag != tar.TypeDir {
		return "must be a folder"
	}
	if name == StagingInfo && h.Typeflag != tar.TypeReg {
		return "must be a regular file"
	}
	if old, ok := t[name]; ok && (old != tar.TypeDir || h.Typeflag != tar.TypeDir) {
		return "occurs twice"
	}
	if reason := t.refuseParents(name); reason != "" {
		return reason
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return "is a sparse file, which dew does not support: create the archive without sparse files"
		}
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir:
		return ""
	case tar.TypeSymlink:
		return refuseSymlink(h)
	case tar.TypeLink:
		return t.refuseLink(h)
	case tar.TypeGNUSparse:
		return "is a sparse file, which dew does not support: create the archive without sparse files"
	}
	return "is neither a file, a folder nor a link"
}

func refusePath(name string) string {
	switch {
	case name == "":
		return "has no name"
	case strings.HasPrefix(name, "/"):
		return "must be relative"
	case slices.Contains(strings.Split(name, "/"), ".."):
		return "must not contain .."
	case strings.ContainsRune(name, 0):
		return "must not contain a zero byte"
	case strings.HasPrefix(path.Base(name), Whiteout):
		return fmt.Sprintf("must not start with %s: unpacking would remove a file", Whiteout)
	case path.Clean(name) != name:
		return fmt.Sprintf("must be written as %q", path.Clean(name))
	}
	top, _, _ := strings.Cut(name, "/")
	if name == StagingInfo || slices.Contains(imageDirs, top) {
		return ""
	}
	return fmt.Sprintf("must be in one of the folders %s, or be the file %s", strings.Join(imageDirs, ", "), StagingInfo)
}

// refuseParents refuses an entry that would be written through a link to another place,
// or below a file.
func (t imageTree) refuseParents(name string) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		switch kind, ok := t[dir]; {
		case ok && kind == tar.TypeDir:
			return "" // so are the folders above it
		case ok:
			return fmt.Sprintf("is inside %q, which is not a folder", dir)
		}
	}
	return ""
}

// refuseSymlink checks a symbolic link. It can point anywhere, because it is only
// followed in the container.
func refuseSymlink(h *tar.Header) string {
	if h.Linkname == "" || strings.ContainsRune(h.Linkname, 0) {
		return "is a symbolic link without a valid target"
	}
	return ""
}

// refuseLink checks a hard link. It is followed while unpacking, so it must point to a
// file of the image itself.
func (t imageTree) refuseLink(h *tar.Header) string {
	kind, ok := t[h.Linkname]
	if !ok || (kind != tar.TypeReg && kind != tar.TypeLink) {
		return fmt.Sprintf("is a hard link to %q, which is not a file earlier in the image", h.Linkname)
	}
	return ""
}

// Whiteout is the prefix of file names by which layers of images remove other files.
// Unpacking such an entry would remove a file instead of creating one.
const Whiteout = ".wh."
