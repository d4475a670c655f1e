package ocispec

import (
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dewrun/dew/certs"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/services/bindingfiles"
)

// isOwnMount reports whether a mount belongs to dew itself, not to a stack.
func isOwnMount(path string) bool {
	switch path {
	case "/etc/hosts", "/etc/resolv.conf", "/etc/hostname", bindingfiles.Dir, certs.InstanceDir, certs.BundlePath:
		return true
	}
	return strings.HasPrefix(path, dewFolder)
}

// StackMounts returns the mounts of a container that come from its stack.
func StackMounts(all []specs.Mount) []stack.Mount {
	system := map[string]bool{}
	for _, m := range systemMounts() {
		system[m.Destination] = true
	}
	var out []stack.Mount
	for _, m := range all {
		if !system[m.Destination] && !isOwnMount(m.Destination) {
			out = append(out, stack.Mount{Path: m.Destination, Type: m.Type, Source: m.Source, Options: m.Options})
		}
	}
	return out
}
