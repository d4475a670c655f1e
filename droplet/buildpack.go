package droplet

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/droplet/cause"
	"github.com/dewrun/dew/spelling"
)

// The built-in buildpacks, as manifests name them.
const (
	// BinaryBuildpack runs files as they were pushed, with the commands of their
	// Procfile. It is used only if the app names it.
	BinaryBuildpack = "binary_buildpack"
	JavaBuildpack   = "java_buildpack"
	RubyBuildpack   = "ruby_buildpack"
	NodeBuildpack   = "nodejs_buildpack"
	GoBuildpack     = "go_buildpack"
	PythonBuildpack = "python_buildpack"
	PHPBuildpack    = "php_buildpack"
	NginxBuildpack  = "nginx_buildpack"
	// StaticBuildpack serves files. It needs a program in addition to its scripts: see
	// CatalogOptions.Programs.
	StaticBuildpack = "staticfile_buildpack"
)

// Buildpack is a buildpack and its settings.
type Buildpack struct {
	GUID      string       `json:"guid"`
	Name      string       `json:"name"`              // as in manifests
	Aliases   []string     `json:"aliases,omitempty"` // short names
	Stack     string       `json:"stack,omitempty"`   // empty: any stack
	Position  int          `json:"position"`          // from 1
	Enabled   bool         `json:"enabled"`           // whether apps can use it
	Locked    bool         `json:"locked"`            // its bits cannot be replaced
	BuiltIn   bool         `json:"built_in,omitempty"`
	State     string       `json:"state"`
	Filename  string       `json:"filename,omitempty"` // file name of the upload
	SHA256    string       `json:"sha256,omitempty"`   // checksum of the upload; empty: the built-in version
	CreatedAt time.Time    `json:"created_at"`
	UpdatedAt time.Time    `json:"updated_at"`
	Metadata  app.Metadata `json:"metadata,omitzero"`
}

// Buildpacks returns the built-in buildpacks in their default order of detection.
func Buildpacks() []Buildpack {
	names := []string{StaticBuildpack, JavaBuildpack, RubyBuildpack, NodeBuildpack, GoBuildpack, PythonBuildpack, PHPBuildpack, NginxBuildpack, BinaryBuildpack}
	out := make([]Buildpack, 0, len(names))
	for i, name := range names {
		out = append(out, Buildpack{
			GUID: builtInGUID(name), Name: name, Aliases: []string{strings.TrimSuffix(name, "_buildpack")},
			Position: i + 1, Enabled: true, Locked: true, BuiltIn: true, State: BuildpackReady,
		})
	}
	return out
}

// builtInGUID returns the guid of a built-in buildpack. It never changes.
func builtInGUID(name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://dew.run/buildpack/"+name)).String()
}

// BuildpackError says that a buildpack does not exist.
type BuildpackError struct {
	Name   string // without secrets
	Reason string // empty: no buildpack has that name
	Near   string // the name that Name may be a misspelling of
}

// The first words are those of Cloud Foundry, because clients check for them.
func (e *BuildpackError) Error() string {
	why := e.Reason
	if why == "" {
		why = "it does not exist"
	}
	hint := "."
	if e.Near != "" {
		hint = ": did you mean " + e.Near + "?"
	}
	return fmt.Sprintf("Buildpack must be an existing admin buildpack or a valid git URI. \"%s\" cannot be used, because %s%s "+
		"To let dew detect the buildpack, set no buildpack. To run the files as they are, use %s", e.Name, why, hint, BinaryBuildpack)
}

// CheckBuildpacks returns a *BuildpackError for the first invalid name. Valid are the
// buildpacks in names, the built-in ones, URLs and folders.
func CheckBuildpacks(used []string, names ...Buildpack) error {
	names = append(Buildpacks(), names...)
	for _, name := range used {
		if isCustom(name) || slices.ContainsFunc(names, func(b Buildpack) bool { return b.called(name) }) {
			continue
		}
		known := make([]string, len(names))
		for i, b := range names {
			known[i] = b.Name
		}
		if !strings.Contains(name, "://") && (strings.HasSuffix(name, ".zip") || strings.HasPrefix(name, ".")) {
			return &BuildpackError{Name: name, Reason: "it is a local path, and cf push does not upload buildpacks. " +
				"An administrator can add it with cf create-buildpack NAME " + name + " POSITION; or use its URL, or dew push -b FOLDER"}
		}
		return &BuildpackError{Name: WithoutSecret(name), Near: spelling.Nearest(name, known)}
	}
	return nil
}

func (b Buildpack) called(name string) bool {
	return b.Name == name || slices.Contains(b.Aliases, name)
}

// isCustom reports whether a buildpack is named by its location.
func isCustom(name string) bool { return isURL(name) || IsFolder(name) || isUploaded(name) }

// IsFolder reports whether a buildpack is a folder of this machine.
func IsFolder(name string) bool { return path.IsAbs(name) }

// isZip reports whether a URL is that of a zip and not of a git repository.
func isZip(name string) bool {
	u, err := url.Parse(name)
	return err == nil && strings.HasPrefix(u.Scheme, "http") && strings.EqualFold(path.Ext(u.Path), ".zip")
}

// isURL reports whether a buildpack is the URL of a git repository or of a zip.
func isURL(name string) bool {
	if strings.HasPrefix(name, "git@") {
		return true
	}
	u, err := url.Parse(name)
	return err == nil && u.Host != "" && slices.Contains([]string{"http", "https", "git", "ssh"}, u.Scheme)
}

// WithoutSecret hides the password in the URL of a buildpack. It also hides a user name
// without a password, which can be a token, and a query.
func WithoutSecret(name string) string {
	u, err := url.Parse(name)
	if err != nil {
		// Text that is not a valid URL can still contain a secret.
		scheme, rest, _ := strings.Cut(name, "://")
		if i := strings.LastIndexByte(rest, '@'); i >= 0 {
			return scheme + "://" + cause.Hidden + rest[i:]
		}
		return name
	}
	query := u.RawQuery != "" && u.Host != ""
	if u.User == nil && !query {
		return name
	}
	if query {
		u.RawQuery = cause.Hidden
	}
	if _, password := u.User.Password(); u.User != nil && !password && strings.HasPrefix(u.Scheme, "http") {
		u.User = url.User(cause.Hidden)
	}
	return u.Redacted()
}
