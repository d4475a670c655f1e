// Package inspect looks at the files of a package: whether it has one, and what it lacks if
// no buildpack detects the app.
package inspect
