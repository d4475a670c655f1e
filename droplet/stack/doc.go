// Package stack keeps the root file systems that apps run on: the host's own, those
// built from Debian, uploaded tarballs and images of registries. It also fetches the
// images of apps that are pushed as images.
package stack
