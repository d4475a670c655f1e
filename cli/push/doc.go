// Package push has the dew commands that upload files to dewd: dew push, and the
// commands for manifests, packages, droplets, buildpacks and stacks.
//
//	push.go  build.go  depends.go  deploy.go  droplet.go  image.go  local_buildpacks.go:
//	                           push and its flags
//	manifest.go  redact.go     the manifest and its changes
//	bits.go  ignore.go         the files of an app
//	watch.go                   push after each change
//	packages.go  resources.go  packages, droplets
//	buildpacks.go  stacks.go   buildpacks and stacks
package push
