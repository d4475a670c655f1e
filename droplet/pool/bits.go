package pool

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha1" // clients send SHA-1 checksums
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/dewrun/dew/droplet/archive"
)

// Upload is an upload that passed the checks, before any file of it is read. It has
// every entry once, and parents before their contents.
type Upload struct {
	Entries []entry // by path
	Size    int64   // bytes of all files
	src     *source // reader below the zip; nil without a zip
	by      Reader  // the user, who must be able to read the files that are not in the zip
}

// entry is one file, folder or symbolic link of an upload.
type entry struct {
	Path string // clean and relative
	kind byte   // tar.TypeReg, TypeDir or TypeSymlink
	mode int64
	size int64
	link string    // target of a symbolic link
	sum  Content   // content of a file, if it is known before it is read
	sums sums      // of a file, after it was stored
	file *zip.File // nil: there is nothing to read, or it comes from the pool
}

// known reports whether the content of e is known without reading it.
func (e entry) known() bool { return e.file == nil }

// The limits of names in an archive, so that they can be unpacked. They are the limits
// of the system, with room for the target folder.
const (
	MaxName = 255
	maxPath = 3072
	maxLink = 4095
)

// bitsReader collects the entries of an upload and refuses invalid ones.
type bitsReader struct {
	o    Limits
	at   map[string]*entry
	made map[string]bool // folders that no entry has named so far
	size int64
}

// ReadUpload checks an upload as far as possible without reading files. A refusal is an
// *Error.
func ReadUpload(claim Claim, zipped io.ReaderAt, size int64, o Limits) (*Upload, error) {
	r := &bitsReader{o: o, at: make(map[string]*entry, len(claim.Resources)), made: map[string]bool{}}
	for _, m := range claim.Resources {
		if err := r.addMatched(m); err != nil {
			return nil, err
		}
	}
	b := &Upload{by: claim.By}
	if zipped != nil {
		b.src = &source{r: zipped, size: size, most: o.MaxFiles}
		if err := r.addZip(b.src); err != nil {
			return nil, err
		}
	}
	if len(r.at) == 0 {
		return nil, &Error{Reason: "has no files: push a folder with at least one file"}
	}
	if err := r.checkLinks(); err != nil {
		return nil, err
	}
	for _, e := range r.at {
		b.Entries = append(b.Entries, *e)
	}
	slices.SortFunc(b.Entries, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
	b.Size = r.size
	return b, nil
}

func (r *bitsReader) addMatched(m Resource) error {
	mode := uint64(0o644)
	if m.Mode != "" {
		var err error
		if mode, err = strconv.ParseUint(m.Mode, 8, 32); err != nil {
			return &Error{m.Path, fmt.Sprintf("has the mode %q, which is not an octal number such as 644", m.Mode)}
		}
	}
	sum, err := hex.DecodeString(m.SHA1)
	if err != nil || len(sum) != sha1.Size {
		return &Error{m.Path, fmt.Sprintf("has the checksum %q, which is not a SHA-1 checksum", m.SHA1)}
	}
	if m.Size < 0 {
		return &Error{m.Path, "has a negative size"}
	}
	if strings.HasSuffix(m.Path, "/") {
		return &Error{m.Path, "is a folder: only files can be matched"}
	}
	return r.add(m.Path, entry{
		kind: tar.TypeReg, mode: fileMode(fs.FileMode(mode)), size: m.Size,
		sum: Content{sha1: [sha1.Size]byte(sum), size: m.Size},
	})
}

func (r *bitsReader) addZip(src *source) error {
	z, err := zip.NewReader(src, src.size)
	src.counted = true
	if src.err != nil {
		return src.err
	}
	// Names outside the tree are refused one by one below.
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return &Error{Reason: "is not a complete zip archive: upload it again"}
	}
	if int64(len(z.File)) > r.o.MaxFiles {
		return tooMany(r.o.MaxFiles)
	}
	for _, f := range z.File {
		if err := r.addFile(f); err != nil {
			return src.uploadError(err)
		}
	}
	return nil
}

func (r *bitsReader) addFile(f *zip.File) error {
	const encrypted = 0x1
	mode := f.Mode()
	e := entry{kind: tar.TypeReg, mode: fileMode(mode), file: f}
	switch {
	case f.Flags&encrypted != 0:
		return &Error{f.Name, "is encrypted: create the archive without a password"}
	case mode.IsDir() && f.UncompressedSize64 > 0:
		return &Error{f.Name, "is a folder with content"}
	case mode.IsDir():
		e = entry{kind: tar.TypeDir, mode: DirMode}
	case mode.Type() == fs.ModeSymlink:
		link, err := readLink(f)
		if err != nil {
			return err
		}
		e = entry{kind: tar.TypeSymlink, mode: linkMode, link: link}
	case !mode.IsRegular():
		return &Error{f.Name, "is neither a file, a folder nor a symbolic link"}
	case f.UncompressedSize64 > uint64(r.o.MaxFileBytes):
		return &Error{f.Name, fmt.Sprintf("is larger than the maximum of %s per file", archive.Size(r.o.MaxFileBytes))}
	case f.UncompressedSize64 == 0:
		e.file, e.sum = nil, emptyContent
	default:
		e.size = int64(f.UncompressedSize64)
	}
	return r.add(f.Name, e)
}

// Folders and links always have the same mode, because a client need not send folders,
// and the tree must be the same. A file keeps its mode, without setuid and similar
// bits; its owner can always read and write it.
const (
	DirMode  = 0o755
	linkMode = 0o777
)

func fileMode(m fs.FileMode) int64 { return int64(m.Perm() | 0o600) }

// readLink reads the target of a symbolic link, which is its content.
func readLink(f *zip.File) (string, error) {
	if f.UncompressedSize64 == 0 || f.UncompressedSize64 > maxLink {
		return "", &Error{f.Name, fmt.Sprintf("is a symbolic link whose target has %d bytes (1 to %d are allowed)", f.UncompressedSize64, maxLink)}
	}
	var target bytes.Buffer
	if err := copyZip(&target, f, make([]byte, maxLink+1)); err != nil {
		return "", err
	}
	if bytes.IndexByte(target.Bytes(), 0) >= 0 {
		return "", &Error{f.Name, "is a symbolic link whose target contains a zero byte"}
	}
	return target.String(), nil
}

// add adds an entry, and the folders above it, to the tree.
func (r *bitsReader) add(name string, e entry) error {
	if reason := refuseName(name); reason != "" {
		return &Error{name, reason}
	}
	e.Path = path.Clean(name)
	if e.Path == "." && e.kind == tar.TypeDir {
		return nil // the tree itself
	}
	if e.Path == "." || strings.HasSuffix(name, "/") && e.kind != tar.TypeDir {
		return &Error{name, "must be a folder"}
	}
	old := r.at[e.Path]
	switch {
	case old == nil:
	case old.kind == tar.TypeDir && e.kind == tar.TypeDir:
		return nil
	case r.made[e.Path]:
		return &Error{name, "is not a folder, but other entries are inside it"}
	default:
		return &Error{name, "occurs twice"}
	}
	if err := r.count(e); err != nil {
		return err
	}
	return r.addParents(e.Path)
}

// addParents adds the folders above p that no entry has named so far. It refuses p if
// another entry has the path of a folder: p would be unpacked through a link.
func (r *bitsReader) addParents(p string) error {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		up := r.at[dir]
		if up != nil && up.kind != tar.TypeDir {
			return &Error{p, fmt.Sprintf("is inside %q, which is not a folder", dir)}
		}
		if up != nil {
			return nil // so are the folders above it
		}
		r.made[dir] = true
		if err := r.count(entry{Path: dir, kind: tar.TypeDir, mode: DirMode}); err != nil {
			return err
		}
	}
	return nil
}

// count refuses e if it exceeds the limits. It uses the sizes in the upload, which are
// verified when the files are read.
func (r *bitsReader) count(e entry) error {
	if e.size > r.o.MaxFileBytes {
		return &Error{e.Path, fmt.Sprintf("is larger than the maximum of %s per file", archive.Size(r.o.MaxFileBytes))}
	}
	if r.size += e.size; r.size > r.o.MaxBytes {
		return &Error{e.Path, fmt.Sprintf("exceeds the limit: all files together are larger than %s (exclude files that the app does not need with .cfignore)", archive.Size(r.o.MaxBytes))}
	}
	if int64(len(r.at)) >= r.o.MaxFiles {
		return tooMany(r.o.MaxFiles)
	}
	r.at[e.Path] = &e
	return nil
}

func tooMany(most int64) error {
	return &Error{Reason: fmt.Sprintf("has more than %d entries: exclude files that the app does not need with .cfignore", most)}
}

// refuseName returns the reason why a name cannot be in a package, or nothing.
func refuseName(name string) string {
	if name == "" {
		return "has no name"
	}
	if strings.HasPrefix(name, "/") {
		return "must be relative"
	}
	if strings.ContainsRune(name, 0) {
		return "must not contain a zero byte"
	}
	if len(name) > maxPath {
		return fmt.Sprintf("has a path of more than %d bytes", maxPath)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return "must not contain .."
		case len(part) > MaxName:
			return fmt.Sprintf("has a name of more than %d bytes", MaxName)
		case strings.HasPrefix(part, archive.Whiteout):
			return fmt.Sprintf("must not start with %s: in an image, such a name removes a file", archive.Whiteout)
		}
	}
	return ""
}

// checkLinks refuses symbolic links that lead out of the tree, directly or through
// other links.
func (r *bitsReader) checkLinks() error {
	links := map[string]string{}
	for p, e := range r.at {
		if e.kind == tar.TypeSymlink {
			links[p] = e.link
		}
	}
	var bad []string
	for p, target := range links {
		if leavesTree(links, p) {
			bad = append(bad, fmt.Sprintf("%s\x00%s", p, target))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	p, target, _ := strings.Cut(slices.Min(bad), "\x00") // always report the same one
	return &Error{p, fmt.Sprintf("is a symbolic link to %q, which is outside the app: copy the file into the app", target)}
}

// leavesTree follows a link as the kernel would if the tree were the whole file system.
// A path that seems to stay inside can leave the tree through another link.
func leavesTree(links map[string]string, link string) bool {
	at := strings.Split(path.Dir(link), "/")
	if at[0] == "." {
		at = nil
	}
	if strings.HasPrefix(links[link], "/") {
		return true
	}
	todo := strings.Split(links[link], "/")
	for hops := 1; len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		if next == "" || next == "." {
			continue
		}
		if next == ".." && len(at) == 0 {
			return true
		}
		if next == ".." {
			at = at[:len(at)-1]
			continue
		}
		at = append(at, next)
		target, ok := links[strings.Join(at, "/")]
		if !ok {
			continue
		}
		if strings.HasPrefix(target, "/") {
			return true
		}
		if hops++; hops > archive.MaxLinks {
			return false // the kernel stops here as well
		}
		at = at[:len(at)-1]
		todo = append(strings.Split(target, "/"), todo...)
	}
	return false
}

// copyZip writes the content of f to w. An error in f is an *Error; other errors are
// those of w.
func copyZip(w io.Writer, f *zip.File, buf []byte) error {
	r, err := f.Open()
	if errors.Is(err, zip.ErrAlgorithm) {
		return &Error{f.Name, fmt.Sprintf("is compressed with method %d, which dew does not support: use deflate", f.Method)}
	}
	damaged := &Error{f.Name, "is damaged: upload it again"}
	if err != nil {
		return damaged
	}
	defer r.Close()
	left := int64(f.UncompressedSize64)
	for {
		n, err := r.Read(buf)
		if left -= int64(n); left < 0 {
			return damaged // more than it declares
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) && left == 0 {
			return nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return &Error{f.Name, "is incomplete: upload it again"}
		}
		if err != nil {
			return damaged
		}
	}
}

// sourceSlack is how many headers can be read twice while the library searches for the
// end.
const sourceSlack = 4096

// header is the start of every entry in the directory of a zip.
var header = []byte("PK\x01\x02")

// source reads the upload below a zip. It remembers its own errors, which are not the
// archive's. While the directory is read, it counts headers and stops at far too many.
// Otherwise the library would hold all of them in memory before dew can count them.
type source struct {
	r    io.ReaderAt
	size int64
	most int64 // maximum number of entries
	err  error

	counted bool   // the directory has been read
	headers int64  // headers so far
	next    int64  // where the previous read ended
	tail    []byte // the end of the previous read, because two reads can split a header
}

func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= s.size {
		return 0, io.EOF // a forged offset is an error of the archive, not of its source
	}
	n, err := s.r.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = fmt.Errorf("cannot read the upload: %w", err)
	}
	if s.counted {
		return n, err
	}
	s.count(p[:n], off)
	if s.headers > s.most+sourceSlack {
		s.err = tooMany(s.most)
		return 0, s.err
	}
	return n, err
}

// uploadError returns the error of the upload itself, if there is one, instead of err,
// which is only its consequence.
func (s *source) uploadError(err error) error {
	if s != nil && s.err != nil {
		return s.err
	}
	return err
}

func (s *source) count(p []byte, off int64) {
	if off != s.next {
		s.tail = nil
	}
	joint := append(s.tail, p[:min(len(p), len(header)-1)]...)
	s.headers += int64(bytes.Count(joint, header) + bytes.Count(p, header))
	s.next = off + int64(len(p))
	if len(p) >= len(header) {
		joint = p
	}
	s.tail = bytes.Clone(joint[max(0, len(joint)-len(header)+1):])
}

// Limits are the limits of an upload.
type Limits struct {
	MaxBytes     int64 // bytes of all files, unpacked
	MaxFiles     int64 // entries
	MaxFileBytes int64 // bytes of one file, unpacked
}

// Resource is a file that a client could send.
type Resource struct {
	Path string
	Mode string // octal text
	SHA1 string // hex
	Size int64
}

// Error says which entry of an upload is refused and why.
type Error struct {
	Entry  string // empty: the upload as a whole
	Reason string
}

func (e *Error) Error() string {
	if e.Entry == "" {
		return "the package " + e.Reason
	}
	return fmt.Sprintf("package entry %q %s", e.Entry, e.Reason)
}
