// Package buildcache stores the files that buildpacks keep for the next build: one cache
// per app, and one per stack that new apps begin with.
package buildcache
