package client

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// runs is the parent of the daemons' folders of run-time files.
const runs = "/run/"

// Daemons lists the folders of run-time files under /run in which a daemon listens. It
// connects to none of them, because systemd would start a daemon for the connection.
func Daemons() []string {
	text, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return nil
	}
	return daemonsIn(string(text))
}

// daemonsIn parses the kernel's list of sockets.
func daemonsIn(text string) []string {
	// Num RefCount Protocol Flags Type St Inode Path
	const flags, path, listening = 3, 7, "00010000"
	var out []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != path+1 || f[flags] != listening || !strings.HasPrefix(f[path], runs) || filepath.Base(f[path]) != Socket {
			continue
		}
		if dir := filepath.Dir(f[path]); !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	slices.Sort(out)
	return out
}
