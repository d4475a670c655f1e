// Package stack stores the root file systems of apps: the host's own, those built from
// Debian, uploaded tarballs and images from registries. It also fetches the images of
// apps that are pushed as images.
package stack
