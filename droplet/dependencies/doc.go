// Package dependencies finds out whether the files of an app determine its dependencies
// completely. If they do, a build with the same files can use the dependencies of the
// last build, and installs nothing.
//
//	Key  files + language version + stack + variables ──▶ a key, or none if that is not certain
//
// Two builds with the same key get the same dependencies. If there is any doubt, there
// is no key, and the buildpack installs the dependencies.
package dependencies
