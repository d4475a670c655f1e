package droplet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/store"
)

// folderPrefix is the start of the name of a buildpack that was uploaded for the apps
// of one space: folder:NAME@SUM.
const folderPrefix = "folder:"

const (
	// folderLease is how long a folder stays without an app. It is uploaded before its
	// app is created.
	folderLease = time.Hour
	// spareFolders is the maximum number of such folders in a space.
	spareFolders = 10
	// folderSum is the length of the checksum in the name.
	folderSum = 24
)

// folderName matches valid names of folders.
var folderName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// BuildpackFolder is a folder that a user uploaded as a buildpack for the apps of a
// space. Its files are like those of a package: every user who can push apps to the
// space can upload one. Only builds of that space run it.
type BuildpackFolder struct {
	Name       string    `json:"name"` // as in the manifests of the space's apps
	Space      string    `json:"space"`
	SHA256     string    `json:"sha256"`
	UploadedAt time.Time `json:"uploaded_at"` // last upload
}

func (f BuildpackFolder) key() string { return f.Space + "/" + f.Name }

// FolderUpload is the upload of a BuildpackFolder.
type FolderUpload struct {
	Space   string
	Name    string     // name of the folder
	Matched pool.Claim // files that Match had found
	Zip     io.ReaderAt
	Size    int64 // size of Zip
}

// isUploaded reports whether a buildpack is an uploaded folder.
func isUploaded(name string) bool { return strings.HasPrefix(name, folderPrefix) }

// AddFolder stores a folder as a buildpack for the apps of a space, and returns its
// name for manifests. Equal files have equal names. A refusal is a *PackageError. The
// folder stays as long as an app or a build uses it.
func (b *Builds) AddFolder(ctx context.Context, u FolderUpload) (string, error) {
	f, err := b.packages.addFolder(ctx, u)
	if err != nil {
		return "", err
	}
	if err := b.collectFolders(); err != nil {
		b.o.Logger.Warn("cannot remove old buildpack folders", "err", err)
	}
	return f.Name, nil
}

func (p *Packages) addFolder(ctx context.Context, u FolderUpload) (BuildpackFolder, error) {
	if !folderName.MatchString(u.Name) {
		return BuildpackFolder{}, &pool.Error{Reason: fmt.Sprintf("has the invalid folder name %q: use letters, digits, dots, dashes and underscores, at most 100 characters", u.Name)}
	}
	if err := p.Space(); err != nil {
		return BuildpackFolder{}, fmt.Errorf("cannot store buildpack %s: %w", u.Name, err)
	}
	bits, err := pool.ReadUpload(u.Matched, u.Zip, u.Size, p.o.limits())
	if err != nil {
		return BuildpackFolder{}, err
	}
	if err := checkScripts(bits); err != nil {
		return BuildpackFolder{}, err
	}
	sha, done, err := p.pool.Add(ctx, bits)
	if err != nil {
		return BuildpackFolder{}, err
	}
	defer done() // not before the record is stored
	f := BuildpackFolder{Name: folderPrefix + u.Name + "@" + sha[:folderSum], Space: u.Space, SHA256: sha, UploadedAt: time.Now().UTC()}
	if err := p.folders.Put(f.key(), f); err != nil {
		return f, fmt.Errorf("cannot store buildpack %s: %w", u.Name, err)
	}
	return f, nil
}

// CheckFolders returns a *BuildpackError for the first name of an uploaded folder that
// the space does not have.
func (p *Packages) CheckFolders(space string, names []string) error {
	for _, name := range names {
		if !isUploaded(name) {
			continue
		}
		_, err := p.folders.Get(BuildpackFolder{Space: space, Name: name}.key())
		if errors.Is(err, store.ErrNotFound) {
			return noFolder(name)
		}
		if err != nil {
			return fmt.Errorf("cannot read buildpack folders: %w", err)
		}
	}
	return nil
}

func noFolder(name string) error {
	return &BuildpackError{Name: name, Reason: "no such folder was uploaded to this space, or dew has removed it since (upload it with dew push -b FOLDER)"}
}

// folderChoice returns a buildpack from an uploaded folder.
func (p *Packages) folderChoice(name string) (chosen, error) {
	found, err := p.folders.By("name", name)
	if err != nil {
		return chosen{}, fmt.Errorf("cannot read buildpack folders: %w", err)
	}
	if len(found) == 0 {
		return chosen{}, noFolder(name)
	}
	sha := found[0].SHA256 // it is the same in every space
	return chosen{name: name, key: sha, custom: true, strip: pool.Top, open: func() (io.ReadCloser, error) {
		f, done, err := p.open(sha)
		return &doneCloser{f, done}, err
	}}, nil
}

// collectFolders removes the folders that no app and no build uses, if their lease has
// expired or there are too many.
func (b *Builds) collectFolders() error {
	all, err := b.packages.folders.All()
	if err != nil || len(all) == 0 || b.o.Buildpacks == nil {
		return err
	}
	used, err := b.o.Buildpacks()
	if err != nil {
		return fmt.Errorf("cannot list the buildpacks in use: %w", err)
	}
	staging, err := b.builds.By("state", string(BuildStaging))
	if err != nil {
		return fmt.Errorf("cannot read builds: %w", err)
	}
	for _, w := range staging {
		used = append(used, w.Buildpacks...)
	}
	return b.packages.dropFolders(all, used)
}

func (p *Packages) dropFolders(all []BuildpackFolder, used []string) error {
	slices.SortFunc(all, func(a, b BuildpackFolder) int { return b.UploadedAt.Compare(a.UploadedAt) })
	spare := map[string]int{} // by space
	for _, f := range all {
		if slices.Contains(used, f.Name) {
			continue
		}
		if spare[f.Space]++; spare[f.Space] <= spareFolders && time.Since(f.UploadedAt) < folderLease {
			continue
		}
		if err := p.folders.Delete(f.key()); err != nil {
			return fmt.Errorf("cannot remove buildpack %s: %w", f.Name, err)
		}
	}
	return p.pool.Collect(p.named)
}
