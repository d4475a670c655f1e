package stack

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dewrun/dew/droplet/archive"
)

// HostName is the name of the stack that consists of the machine's own files.
const HostName = "host"

// DefaultAppID is the default user and group ID of apps.
const DefaultAppID = 2000

// HostOptions describes the machine to create a stack from, and the user of apps.
type HostOptions struct {
	Root     string // path of the machine's root (empty: /)
	UID, GID int    // IDs of the app's user vcap (0: DefaultAppID)
}

// FromHost returns the stack of the machine's own /usr, read-only, with a minimal /etc.
// It contains no other files of the machine than those listed in this file.
func FromHost(o HostOptions) (Stack, error) {
	o.Root = cmp.Or(o.Root, "/")
	o.UID = cmp.Or(o.UID, DefaultAppID)
	o.GID = cmp.Or(o.GID, DefaultAppID)
	if o.UID < 0 || o.GID < 0 {
		return Stack{}, fmt.Errorf("cannot create the host stack: %d:%d are not valid user and group IDs", o.UID, o.GID)
	}
	h := &hostStack{root: o.Root, Stack: Stack{Name: HostName}}
	if err := h.findShell(); err != nil {
		return Stack{}, err
	}
	h.addBase(o.UID, o.GID)
	if err := h.addMachine(); err != nil {
		return Stack{}, fmt.Errorf("cannot create the host stack: %w", err)
	}
	h.Mounts = append(h.Mounts, Mount{
		// Programs unpack libraries here and load them, so it is not noexec. The kernel
		// charges the written data to the memory of the writing process.
		Path: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"},
	})
	if err := h.setID(); err != nil {
		return Stack{}, fmt.Errorf("cannot create the host stack: %w", err)
	}
	return h.Stack, nil
}

// usrDirs are the folders at the root that are links into /usr on most machines.
var usrDirs = []string{"/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"}

// etcPatterns are the files in /etc that programs in /usr need: certificates,
// alternatives, and settings of the linker and of languages. They contain no secrets:
// of folders with private keys, only the public parts are listed. Every entry costs
// time at every start, so the list has only necessary files.
var etcPatterns = []string{
	"/etc/alternatives",
	"/etc/ca-certificates",
	"/etc/crypto-policies",
	"/etc/fonts",
	"/etc/java",
	"/etc/java-*",
	"/etc/ld.so.cache",
	"/etc/ld.so.conf",
	"/etc/ld.so.conf.d",
	"/etc/localtime",
	"/etc/lsb-release",
	"/etc/maven",
	"/etc/mime.types",
	"/etc/os-release",
	"/etc/php",
	"/etc/pki/ca-trust",
	"/etc/pki/java",
	"/etc/pki/tls/cert.pem",
	"/etc/pki/tls/certs",
	"/etc/pki/tls/openssl.cnf",
	"/etc/protocols",
	"/etc/services",
	"/etc/ssl/cert.pem",
	"/etc/ssl/certs",
	"/etc/ssl/openssl.cnf",
}

// hostStack is a stack that is being created.
type hostStack struct {
	Stack
	root  string   // root of the machine
	bound []string // paths that are bound from the machine
}

// findShell selects bash if the machine has it.
func (h *hostStack) findShell() error {
	for _, sh := range []string{"/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh"} {
		dest, err := archive.Resolve(h.root, sh)
		if err != nil {
			continue
		}
		if fi, err := os.Stat(h.source(dest)); err == nil && fi.Mode().IsRegular() {
			h.Shell = sh
			return nil
		}
	}
	return fmt.Errorf("cannot create the host stack: found neither bash nor sh in %s: install bash, or choose another stack", h.root)
}

// addBase adds the files that are the same on every machine.
func (h *hostStack) addBase(uid, gid int) {
	root := func(mode uint32, paths ...string) {
		for _, p := range paths {
			h.Dirs = append(h.Dirs, Dir{Path: p, Mode: mode})
		}
	}
	root(0o755, "/", "/.dew", "/dev", "/etc", "/home", "/opt", "/proc", "/run", "/sys", "/usr", "/var")
	root(0o700, "/root")
	root(0o1777, "/tmp", "/var/tmp")
	for _, p := range []string{"/home/vcap", "/home/vcap/app", "/home/vcap/deps", "/home/vcap/logs", "/home/vcap/tmp"} {
		h.Dirs = append(h.Dirs, Dir{Path: p, Mode: 0o755, UID: uid, GID: gid})
	}
	file := func(p, data string) {
		h.Files = append(h.Files, File{Path: p, Mode: 0o644, Data: data})
	}
	h.Files = append(h.Files, File{Path: "/.dew/init", Mode: 0o755})
	file("/etc/group", groupFile(gid))
	file("/etc/hostname", "")
	file("/etc/hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	file("/etc/nsswitch.conf", nsswitch)
	file("/etc/passwd", passwdFile(uid, gid, h.Shell))
	file("/etc/resolv.conf", "")
	h.Links = append(h.Links,
		Link{Path: "/etc/mtab", Target: "../proc/self/mounts"},
		Link{Path: "/var/run", Target: "../run"})
}

// nsswitch has only files and DNS as sources. Other sources of the machine need its
// daemons and their sockets.
const nsswitch = `passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
`

func passwdFile(uid, gid int, shell string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "root:x:0:0:root:/root:%s\n", shell)
	if uid != 65534 {
		b.WriteString("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	}
	fmt.Fprintf(&b, "vcap:x:%d:%d:vcap:/home/vcap:%s\n", uid, gid, shell)
	return b.String()
}

func groupFile(gid int) string {
	var b strings.Builder
	b.WriteString("root:x:0:\n")
	if gid != 5 {
		b.WriteString("tty:x:5:\n") // group of the terminals of SSH sessions
	}
	if gid != 65534 {
		b.WriteString("nogroup:x:65534:\n")
	}
	fmt.Fprintf(&b, "vcap:x:%d:\n", gid)
	return b.String()
}

// addMachine adds those of the paths above that exist on the machine. Links come last:
// if their target is bound already, they stay links.
func (h *hostStack) addMachine() error {
	paths := append([]string{"/usr"}, usrDirs...)
	for _, pattern := range etcPatterns {
		found, err := archive.Glob(h.root, pattern)
		if err != nil {
			return err
		}
		paths = append(paths, found...)
	}
	var links []string
	for _, p := range paths {
		fi, err := os.Lstat(h.source(p))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, archive.ErrNotDir):
		case err != nil:
			return err
		case fi.Mode()&fs.ModeSymlink != 0:
			links = append(links, p)
		default:
			h.bind(p, p, fi)
		}
	}
	for _, p := range links {
		if err := h.addLink(p); err != nil {
			return err
		}
	}
	return nil
}

// addLink adds a symbolic link of the machine. If its target is in the stack, it stays
// a link; otherwise the target is bound. A link without a target is left out.
func (h *hostStack) addLink(p string) error {
	dest, err := archive.Resolve(h.root, p)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, archive.ErrNotDir) {
		return nil
	}
	if err != nil {
		return err
	}
	fi, err := os.Lstat(h.source(dest))
	if err != nil {
		return err
	}
	inside := func(b string) bool { return dest == b || strings.HasPrefix(dest, b+"/") }
	if !slices.ContainsFunc(h.bound, inside) {
		h.bind(p, dest, fi)
		return nil
	}
	// Relative, so that it has the same target when the base is read from outside.
	target, err := filepath.Rel(path.Dir(p), dest)
	if err != nil {
		return err
	}
	h.addParents(p)
	h.Links = append(h.Links, Link{Path: p, Target: target})
	return nil
}

// bind adds a read-only bind of the machine's path dest to p, with its mount point. It
// leaves out everything except files and folders.
func (h *hostStack) bind(p, dest string, fi fs.FileInfo) {
	options := []string{"bind", "ro", "nosuid", "nodev"}
	switch {
	case fi.IsDir():
		h.addParents(p)
		h.addDir(p)
		options[0] = "rbind" // including mounts below it
		// crun would otherwise mount on the machine what a container has inside the folder.
		options = append(options, "rprivate")
	case fi.Mode().IsRegular():
		h.addParents(p)
		h.Files = append(h.Files, File{Path: p, Mode: 0o644})
	default:
		return
	}
	h.Mounts = append(h.Mounts, Mount{Path: p, Type: "bind", Source: h.source(dest), Options: options})
	h.bound = append(h.bound, p)
}

func (h *hostStack) addParents(p string) {
	if dir := path.Dir(p); dir != "/" {
		h.addParents(dir)
		h.addDir(dir)
	}
}

func (h *hostStack) addDir(p string) {
	if !slices.ContainsFunc(h.Dirs, func(d Dir) bool { return d.Path == p }) {
		h.Dirs = append(h.Dirs, Dir{Path: p, Mode: 0o755})
	}
}

// source returns the path of the machine's path p as dewd sees it.
func (h *hostStack) source(p string) string { return filepath.Join(h.root, p) }

// setID derives the ID from the stack as data and from the version of the machine's
// software. The kernel version is not part of it.
func (h *hostStack) setID() error {
	data, err := json.Marshal(h.Stack)
	if err != nil {
		return err
	}
	sum := sha256.New()
	sum.Write(data)
	for _, p := range []string{"/etc/os-release", "/var/lib/dpkg/status", "/lib/apk/db/installed"} {
		fmt.Fprintf(sum, "\n%s\n", p)
		if err := h.hashFile(sum, p); err != nil {
			return err
		}
	}
	h.ID = hex.EncodeToString(sum.Sum(nil))[:16]
	return nil
}

func (h *hostStack) hashFile(w io.Writer, p string) error {
	dest, err := archive.Resolve(h.root, p)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, archive.ErrNotDir) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.Open(h.source(dest))
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}
