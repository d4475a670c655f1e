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

// ImagePrefix begins the name of the stack that an image app brings along; what
// follows is the digest of its image.
const ImagePrefix = "image:sha256:"

// treeShell is asked for first on every stack; dew-init takes /bin/sh where it is
// missing, and none where there is no shell at all.
const treeShell = "/bin/bash"

// ofTree makes the stack of trees that came from elsewhere. What they lack of the
// platform is generated.
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

// addSystem adds what every container needs to stand on a tree.
func (st *Stack) addSystem() {
	for _, p := range []string{"/.dew", "/dev", "/etc", "/home", "/proc", "/run", "/sys", "/var"} {
		st.Dirs = append(st.Dirs, Dir{Path: p, Mode: 0o755})
	}
	st.Dirs = append(st.Dirs, Dir{Path: "/tmp", Mode: 0o1777}, Dir{Path: "/var/tmp", Mode: 0o1777})
	// Something is bound over each of them.
	for _, p := range []string{"/.dew/init", "/.dew/sftp", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} {
		st.Files = append(st.Files, File{Path: p, Mode: 0o644})
	}
}

// setTreeID makes the id from the stack as data, in which its trees have the
// digests of their content.
func (st *Stack) setTreeID() error {
	data, err := json.Marshal(st)
	if err != nil {
		return fmt.Errorf("cannot make stack %s: %w", st.Name, err)
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

// ImageRecord is an image that an app brought along.
type ImageRecord struct {
	Digest string   `json:"digest"` // sha256 of its manifest, in hex
	Tree   []string `json:"tree"`   // sha256 of its layers
	Dir    string   `json:"dir"`    // where its program starts
}

// ofImage makes the stack of an image app: the image as it is, nothing of ours
// beside what a container needs.
func (s *Stacks) ofImage(digest string) (Stack, error) {
	if s.images == nil {
		return Stack{}, fmt.Errorf("image %.12s: %w", digest, ErrNoImage)
	}
	k, err := s.images.Get(digest)
	if errors.Is(err, store.ErrNotFound) {
		return Stack{}, fmt.Errorf("%w: image %.12s is gone: push or restage the app to fetch it again", ErrNoImage, digest)
	}
	if err != nil {
		return Stack{}, fmt.Errorf("cannot read image %.12s: %w", digest, err)
	}
	st := Stack{Name: ImagePrefix + digest, Shell: treeShell, Tree: s.trees(k.Tree)}
	st.addSystem()
	st.Dirs = append(st.Dirs, Dir{Path: k.Dir, Mode: 0o755})
	return st, st.setTreeID()
}

// IsImage tells whether a droplet's stack is an image that its app brought.
func IsImage(name string) bool { return strings.HasPrefix(name, ImagePrefix) }
