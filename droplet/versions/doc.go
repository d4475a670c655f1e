// Package versions compares the language version that an app asks for with the version
// on its stack. The built-in buildpacks install no toolchains, so they must tell their
// users if a stack has another version than a file such as package.json asks for.
//
//	Read   files and variables of an app ──▶ Hints, each with its file and line
//	Check  Hints + version on the stack  ──▶ Result: refusal, warnings, notes
//
// A hint that a buildpack of Cloud Foundry uses to choose a version must be satisfied. A
// hint that it ignores, or that only gives a warning there, gives a warning.
package versions
