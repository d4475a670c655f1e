package app

import "slices"

// UsableIn tells whether apps of the space may be destinations of the route.
func (rt Route) UsableIn(space string) bool {
	return rt.Space == space || slices.Contains(rt.SharedWith, space)
}
