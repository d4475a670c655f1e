package droplet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dewrun/dew/droplet/cause"
	"github.com/dewrun/dew/droplet/stack"
)

// missingTool returns a message about a missing program of a built-in buildpack, and
// how to install it. The buildpack reports the name and the Debian package, one per
// line.
func (b *Builds) missingTool(told string, st stack.Stack) string {
	name, pkg, _ := strings.Cut(strings.TrimSpace(told), "\n")
	name, pkg = cause.Shorten(cause.Clean(name)), cause.Shorten(cause.Clean(pkg))
	if st.Name == stack.HostName {
		return fmt.Sprintf("%s is not installed on this machine. Install it: apt install %s", name, pkg)
	}
	missing := fmt.Sprintf("%s is not installed in stack %s.", name, st.Name)
	if b.o.StackStore != nil {
		if k, err := b.o.StackStore.ByName(st.Name); err == nil && k.Kind == stack.KindDebian {
			// A stack with apps must not change, so the message suggests another stack.
			next := st.Name + "-" + pkg
			include := slices.DeleteFunc(strings.Split(k.Source, ","), func(p string) bool { return p == "" || slices.Contains(stack.DebianPackages, p) })
			return missing + fmt.Sprintf(" Build a stack that has it: dew stack build debian --include %s --name %s, then set `stack: %s`",
				strings.Join(append(include, pkg), ","), next, next)
		}
	}
	return missing + " Choose a stack that has it. To list the stacks, run: dew stacks"
}
