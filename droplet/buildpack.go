package droplet

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// BinaryBuildpack is the name of the buildpack that runs files as they were
// pushed, with the commands of their Procfile.
const BinaryBuildpack = "binary_buildpack"

// Buildpack is a way to stage that is built in.
type Buildpack struct {
	GUID     string
	Name     string   // as manifests write it
	Aliases  []string // short names
	Position int      // from 1
	Enabled  bool
	Locked   bool // nobody can replace it
}

// Buildpacks returns the buildpacks that there are, by position.
func Buildpacks() []Buildpack {
	return []Buildpack{
		{GUID: builtIn("buildpack", BinaryBuildpack), Name: BinaryBuildpack, Aliases: []string{"binary"}, Position: 1, Enabled: true, Locked: true},
	}
}

// builtIn makes the guid of something built in: it is the same for ever.
func builtIn(noun, name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://dew.run/"+noun+"/"+name)).String()
}

// BuildpackError says that there is no such buildpack.
type BuildpackError struct {
	Name string // without secrets
}

// The first words are the platform's: clients know them.
func (e *BuildpackError) Error() string {
	why := "there is no such buildpack"
	if strings.Contains(e.Name, "://") || strings.HasPrefix(e.Name, "git@") {
		why = "buildpacks are not fetched"
	}
	return fmt.Sprintf("Buildpack must be an existing admin buildpack or a valid git URI. \"%s\" cannot be used, because %s here: "+
		"leave it out, or use %s, which runs the files as they were pushed", e.Name, why, BinaryBuildpack)
}

// CheckBuildpacks returns a *BuildpackError for the first name that is none of
// Buildpacks.
func CheckBuildpacks(names []string) error {
	for _, name := range names {
		known := slices.ContainsFunc(Buildpacks(), func(b Buildpack) bool {
			return b.Name == name || slices.Contains(b.Aliases, name)
		})
		if !known {
			return &BuildpackError{Name: withoutSecret(name)}
		}
	}
	return nil
}

// withoutSecret hides the password in the address of a buildpack.
func withoutSecret(name string) string {
	u, err := url.Parse(name)
	if err != nil || u.User == nil {
		return name
	}
	return u.Redacted()
}
