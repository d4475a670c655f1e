// Package push has the commands of dew that bring files to dewd: push with its
// manifest, packages, droplets, buildpacks and stacks.
//
//	push.go  build.go  depends.go  deploy.go  droplet.go  image.go  local_buildpacks.go:
//	                           push, and what its flags change
//	manifest.go  redact.go     the manifest, and what it changes
//	bits.go  ignore.go         the files of an app
//	watch.go                   push after each change
//	packages.go  resources.go  packages, droplets
//	buildpacks.go  stacks.go   what apps are staged with and run on
package push
