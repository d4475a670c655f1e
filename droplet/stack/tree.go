package stack

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dewrun/dew/store"
)

// ImagePrefix is the start of the name of the stack of an image app. The digest of its
// image follows.
const ImagePrefix = "image:sha256:"

// treeShell is the preferred shell on every stack. dew-init uses /bin/sh if it is
// missing, and no shell if there is none.
const treeShell = "/bin/bash"

// ofTree creates a stack from trees of another origin. It generates the files that dew
// needs and the trees lack.
func (s *Stacks) ofTree(name string, trees []string) (Stack, error) {
	uid, gid := cmp.Or(s.o.Host.UID, DefaultAppID), cmp.Or(s.o.Host.GID, DefaultAppID)
	st := Stack{Name: name, Shell: treeShell, Tree: s.trees(trees)}
	st.addSystem()
	for _, p := range []string{"/home/vcap", "/home/vcap/app", "/home/vcap/deps", "/home/vcap/logs", "/home/vcap/tmp"} {
		st.Dirs = append(st.Dirs, Dir{Path: p, Mode: 0o755, UID: uid, GID: gid})
	}
	ids := strconv.Itoa(uid) + ":" + strconv.Itoa(gid)
	st.Lines = append(st.Lines,
		Line{Path: "/etc/passwd", Name: "vcap", Text: "vcap:x:" + ids + ":vcap:/home/vcap:/bin/sh"},
		Line{Path: "/etc/group", Name: "vcap", Text: "vcap:x:" + strconv.Itoa(gid) + ":"})
	st.Mounts = append(st.Mounts, Mount{
		Path: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"},
	})
	return st, st.setTreeID()
}

// addSystem adds the files that every container needs to run on a tree.
func (st *Stack) addSystem() {
	for _, p := range []string{"/.dew", "/dev", "/etc", "/home", "/proc", "/run", "/sys", "/var"} {
		st.Dirs = append(st.Dirs, Dir{Path: p, Mode: 0o755})
	}
	st.Dirs = append(st.Dirs, Dir{Path: "/tmp", Mode: 0o1777}, Dir{Path: "/var/tmp", Mode: 0o1777})
	// Another file is bound over each of them.
	for _, p := range []string{"/.dew/init", "/.dew/sftp", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		st.Files = append(st.Files, File{Path: p, Mode: 0o644})
	}
}

// setTreeID derives the ID from the stack as data, which has the digests of its trees.
func (st *Stack) setTreeID() error {
	data, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("cannot create stack %s: %w", st.Name, err)
	}
	sum := sha256.Sum256(data)
	st.ID = hex.EncodeToString(sum[:])[:16]
	return nil
}

func (s *Stacks) trees(shas []string) []Tree {
	var out []Tree
	for _, sha := range shas {
		out = append(out, Tree{SHA256: sha, Open: func() (io.ReadCloser, error) { return s.layers.open(sha) }})
	}
	return out
}

// ImageRecord is the image of an app.
type ImageRecord struct {
	Digest string   `json:"digest"` // sha256 of its manifest, in hex
	Tree   []string `json:"tree"`   // sha256 of its layers
	Dir    string   `json:"dir"`    // working directory of its program
}

// ofImage creates the stack of an image app: the unchanged image, plus the files that a
// container needs.
func (s *Stacks) ofImage(digest string) (Stack, error) {
	if s.images == nil {
		return Stack{}, fmt.Errorf("image %.12s: %w", digest, ErrNoImage)
	}
	k, err := s.images.Get(digest)
	if errors.Is(err, store.ErrNotFound) {
		return Stack{}, fmt.Errorf("%w: image %.12s was deleted: push or restage the app to fetch it again", ErrNoImage, digest)
	}
	if err != nil {
		return Stack{}, fmt.Errorf("cannot read image %.12s: %w", digest, err)
	}
	st := Stack{Name: ImagePrefix + digest, Shell: treeShell, Tree: s.trees(k.Tree)}
	st.addSystem()
	st.Dirs = append(st.Dirs, Dir{Path: k.Dir, Mode: 0o755})
	return st, st.setTreeID()
}

// IsImage reports whether a droplet's stack is the image of its app.
func IsImage(name string) bool { return strings.HasPrefix(name, ImagePrefix) }
