package droplet

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
)

// scripts holds the built-in buildpacks, and the script that runs buildpacks.
//
//go:embed buildpacks
var scripts embed.FS

// stageScript runs buildpacks in the container of a build.
const stageScript = "buildpacks/stage.sh"

// chosen is a buildpack that a build uses, or tries in detection.
type chosen struct {
	name    string // without secrets
	guid    string // in the catalog, or empty
	key     string // changes with the content (empty: unknown before it is fetched)
	url     string // URL of a git repository or of a zip (empty: open returns it)
	custom  bool   // named by URL or folder
	java    bool
	builtIn bool
	binary  bool // the built-in binary buildpack, which does nothing
	strip   string
	open    func() (io.ReadCloser, error)
	helper  func() (io.ReadCloser, error) // the program that its scripts use, or nil
}

// choose returns the named buildpacks, or all to try in detection if there are no
// names. uploads has the uploaded folders.
func (c *Catalog) choose(names []string, st stack.Stack, uploads *Packages) ([]chosen, error) {
	all, err := c.All()
	if err != nil {
		return nil, err
	}
	fits := func(b Buildpack) bool {
		return b.Stack == "" || b.Stack == st.Name || stack.PlatformName.MatchString(b.Stack)
	}
	var out []chosen
	if len(names) == 0 {
		for _, b := range all {
			if !b.Enabled || b.State != BuildpackReady || !fits(b) || b.plainBinary() {
				continue
			}
			h, err := c.choice(b)
			if err != nil {
				return nil, err
			}
			out = append(out, h)
		}
		return out, nil
	}
	for _, name := range names {
		if isUploaded(name) {
			h, err := uploads.folderChoice(name)
			if err != nil {
				return nil, err
			}
			out = append(out, h)
			continue
		}
		h, err := c.find(name, slices.DeleteFunc(slices.Clone(all), func(b Buildpack) bool { return !fits(b) }))
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// plainBinary reports whether it is the original binary buildpack.
func (b Buildpack) plainBinary() bool { return b.Name == BinaryBuildpack && b.SHA256 == "" }

// find finds one buildpack by the name that an app uses.
func (c *Catalog) find(name string, all []Buildpack) (chosen, error) {
	switch {
	case isURL(name):
		return chosen{name: WithoutSecret(name), url: name, custom: true}, nil
	case IsFolder(name):
		return folderChoice(name)
	}
	refused := &BuildpackError{Name: WithoutSecret(name)}
	// An exact name has precedence over an alias.
	for _, exact := range []bool{true, false} {
		for _, b := range all {
			switch {
			case !b.called(name) || exact && b.Name != name:
			case !b.Enabled:
				refused.Reason = "it is disabled"
			case b.State != BuildpackReady:
				refused.Reason = "its files are not uploaded yet"
			default:
				return c.choice(b)
			}
		}
	}
	return chosen{}, refused
}

func (c *Catalog) choice(b Buildpack) (chosen, error) {
	h := chosen{name: b.Name, guid: b.GUID, builtIn: b.SHA256 == "", java: isJava(b.Name)}
	if b.SHA256 != "" {
		h.key, h.strip = b.SHA256, pool.Top
		h.open = func() (io.ReadCloser, error) {
			f, done, err := c.pool.Open(b.SHA256)
			return &doneCloser{f, done}, err
		}
		return h, nil
	}
	raw, err := builtInTar(b.Name)
	if err != nil {
		return h, err
	}
	sum := sha256.Sum256(raw)
	h.key, h.binary = hex.EncodeToString(sum[:]), b.plainBinary()
	h.open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }
	if h.binary {
		return h, nil
	}
	return c.withProgram(h, raw)
}

// The programs of dew that built-in buildpacks use.
const (
	staticProgram = "dew-static"    // serves the files of apps that have no program
	helperProgram = "dew-buildpack" // the part of the others that is not a script
)

// withProgram lets the key of a built-in buildpack depend on the program that it uses.
// If there is no such program, the scripts report that.
func (c *Catalog) withProgram(h chosen, scripts []byte) (chosen, error) {
	name := helperProgram
	if h.name == StaticBuildpack {
		name = staticProgram
	}
	sum, err := c.tools.Sum(name)
	if err != nil || sum == "" {
		return h, err
	}
	h.key += "+" + sum
	if name == staticProgram {
		h.open = func() (io.ReadCloser, error) { return c.tools.Open(scripts, "bin", name) }
	} else {
		h.helper = func() (io.ReadCloser, error) { return c.tools.Open(nil, "", name) }
	}
	return h, nil
}

// doneCloser releases a tree when it is closed.
type doneCloser struct {
	io.Reader
	done func()
}

func (d *doneCloser) Close() error {
	d.done()
	return nil
}

// builtInTar packs an embedded buildpack, with the files that all of them share.
func builtInTar(name string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []struct{ from, as string }{{path.Join("buildpacks", name), ""}, {"buildpacks/lib", "lib"}} {
		err := fs.WalkDir(scripts, dir.from, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := path.Join(dir.as, strings.TrimPrefix(strings.TrimPrefix(p, dir.from), "/"))
			if d.IsDir() {
				return addDir(w, name)
			}
			raw, err := scripts.ReadFile(p)
			if err != nil {
				return err
			}
			return addFile(w, name, raw)
		})
		if err != nil {
			return nil, fmt.Errorf("cannot pack buildpack %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("cannot pack buildpack %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// addDir adds a folder. Otherwise unpacking would create it for the daemon's user.
func addDir(w *tar.Writer, name string) error {
	if name == "" {
		return nil
	}
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: pool.DirMode, ModTime: pool.Time})
}

// addFile adds a file. Its mode depends on its first bytes.
func addFile(w *tar.Writer, name string, raw []byte) error {
	mode := int64(0o644)
	if bytes.HasPrefix(raw, []byte("#!")) {
		mode = 0o755
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(raw)), ModTime: pool.Time}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	return archive.WriteAll(w, raw)
}

// folderChoice returns a buildpack from a folder of this machine. All users must be
// able to read the folder, because the daemon can read files that its users must not.
func folderChoice(dir string) (chosen, error) {
	h := chosen{name: dir, custom: true}
	sum := sha256.New()
	if err := packFolder(dir, sum); err != nil {
		return h, &BuildpackError{Name: dir, Reason: err.Error()}
	}
	h.key = hex.EncodeToString(sum.Sum(nil))
	h.open = func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(packFolder(dir, w)) }()
		return r, nil
	}
	return h, nil
}

// packFolder writes a tar of a folder that all users can read.
func packFolder(dir string, out io.Writer) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for up := filepath.Dir(dir); ; up = filepath.Dir(up) {
		fi, err := os.Stat(up)
		if err != nil {
			return err
		}
		if fi.Mode()&0o001 == 0 {
			return fmt.Errorf("folder %s is not accessible for all users (run chmod o+x)", up)
		}
		if up == "/" {
			break
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read
	w := tar.NewWriter(out)
	f := &folderPacker{root: root, tar: w, left: defaultMaxBytes, files: defaultMaxFiles}
	if err := fs.WalkDir(root.FS(), ".", f.add); err != nil {
		return err
	}
	return w.Close()
}

type folderPacker struct {
	root        *os.Root
	tar         *tar.Writer
	left, files int64
}

func (f *folderPacker) add(p string, d fs.DirEntry, err error) error {
	if err != nil || p == "." {
		return err
	}
	fi, err := d.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: p, Mode: int64(fi.Mode().Perm()), ModTime: pool.Time}
	f.files--
	switch {
	case f.files < 0:
		return fmt.Errorf("the folder has more than %d files", defaultMaxFiles)
	case fi.IsDir() && d.Name() == ".git":
		return fs.SkipDir
	case fi.IsDir() && fi.Mode()&0o005 != 0o005, fi.Mode().IsRegular() && fi.Mode()&0o004 == 0:
		return fmt.Errorf("%s in the folder is not readable for all users (run chmod -R o+rX)", p)
	case fi.IsDir():
		h.Typeflag = tar.TypeDir
		return f.tar.WriteHeader(h)
	case fi.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = f.root.Readlink(p); err != nil {
			return err
		}
		return f.tar.WriteHeader(h)
	case !fi.Mode().IsRegular():
		return nil
	}
	h.Typeflag, h.Size = tar.TypeReg, fi.Size()
	if f.left -= h.Size; f.left < 0 {
		return fmt.Errorf("the folder is larger than %s", archive.Size(defaultMaxBytes))
	}
	return f.file(p, h)
}

func (f *folderPacker) file(p string, h *tar.Header) error {
	in, err := f.root.Open(p)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := f.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(f.tar, in)
	return err
}

// keysOf joins the content keys of buildpacks. It returns nothing if one is unknown.
func keysOf(packs []chosen) string {
	keys := make([]string, 0, len(packs))
	for _, h := range packs {
		if h.key == "" {
			return ""
		}
		keys = append(keys, h.name+"="+h.key)
	}
	return strings.Join(keys, "\n")
}

// onlyBinary reports whether the files run as they were pushed. The scripts of the
// binary buildpack change nothing, so they are not run if it is the only one.
func onlyBinary(packs []chosen) bool { return len(packs) == 1 && packs[0].binary }
