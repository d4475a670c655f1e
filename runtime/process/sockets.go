package process

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Socket is a TCP socket that listens.
type Socket struct {
	Address netip.AddrPort
	Inode   uint64
}

// listenState is the state of a listening socket in /proc/net/tcp.
const listenState = "0A"

// Listening returns the sockets that listen in the network namespace of the calling
// thread.
func Listening() ([]Socket, error) {
	var out []Socket
	for _, table := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil && !os.IsNotExist(err) { // a kernel without IPv6 has no tcp6
			return nil, err
		}
		out = append(out, listening(string(b))...)
	}
	return out, nil
}

// listening reads the listening sockets of a table in the format of /proc/net/tcp. It
// skips lines that it does not understand.
func listening(table string) []Socket {
	var out []Socket
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != listenState {
			continue
		}
		address, ok := hexAddress(fields[1])
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if ok && err == nil {
			out = append(out, Socket{Address: address, Inode: inode})
		}
	}
	return out
}

// hexAddress reads an address such as 0100007F:1F90. The kernel prints it as words of
// 32 bits in the byte order of the machine, which is little-endian here.
func hexAddress(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	p, perr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || perr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), ok
}

// OpenSockets returns the inodes of the sockets that processes have open.
func OpenSockets(pids []int) map[uint64]bool {
	out := map[uint64]bool{}
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, f := range files {
			target, err := os.Readlink(f)
			number, isSocket := strings.CutPrefix(target, "socket:[")
			if err != nil || !isSocket {
				continue // closed in the meantime, or another kind of file
			}
			if inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64); err == nil {
				out[inode] = true
			}
		}
	}
	return out
}
