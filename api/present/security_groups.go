package present

import (
	"slices"

	"github.com/dewrun/dew/api/access"
)

// Visible are the spaces among guids that somebody sees.
func Visible(guids []string, perms access.Permissions) []string {
	return slices.DeleteFunc(slices.Clone(guids), func(guid string) bool { return !perms.SeesSpace(guid) })
}
