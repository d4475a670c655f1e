package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/dewrun/dew/netpolicy"
)

// Refusals receives the kernel's reports of refused connections.
type Refusals struct {
	conn  *netlink.Conn
	group uint16
	close func() error // closes conn once
}

// reportedBytes is how much of a refused packet the kernel reports: the longest header
// of IPv4, and the ports.
const reportedBytes = 68

// The messages of the kernel's nfnetlink_log, which golang.org/x/sys/unix does not have.
const (
	logPacket  = unix.NFNL_SUBSYS_ULOG << 8 // NFULNL_MSG_PACKET
	logConfig  = unix.NFNL_SUBSYS_ULOG<<8 | 1
	cfgCommand = 1 // attribute: NFULA_CFG_CMD
	cfgMode    = 2 // attribute: NFULA_CFG_MODE
	cfgFlush   = 5 // attribute: NFULA_CFG_QTHRESH
	bind       = 1 // command: NFULNL_CFG_CMD_BIND
	copyPacket = 2 // mode: NFULNL_COPY_PACKET
	logPayload = 9 // attribute: NFULA_PAYLOAD
	logPrefix  = 10

	groupTries = 64
)

// ListenRefusals takes a log group that no other program uses. It starts at a group
// that depends on the table, so that a restarted daemon gets the group again that the
// rules in the kernel already use.
func ListenRefusals(table string) (*Refusals, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for refused connections: %w", err)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(table)) // a hash has no errors
	first := h.Sum32()
	for try := range uint32(groupTries) {
		group := uint16((first+try)%65000 + 500)
		err = bindGroup(c, group)
		if err == nil {
			return &Refusals{conn: c, group: group, close: sync.OnceValue(c.Close)}, nil
		}
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EEXIST) { // as different kernels say
			break
		}
	}
	return nil, errors.Join(fmt.Errorf("cannot listen for refused connections: %w (check that the kernel has nfnetlink_log)", err), c.Close())
}

// Group returns the log group for NewPolicies, 0 for nil.
func (r *Refusals) Group() uint16 {
	if r == nil {
		return 0
	}
	return r.group
}

// bindGroup takes a group, with packets that are sent at once.
func bindGroup(c *netlink.Conn, group uint16) error {
	mode := binary.BigEndian.AppendUint32(nil, reportedBytes)
	for _, attr := range []netlink.Attribute{
		{Type: cfgCommand, Data: []byte{bind}},
		{Type: cfgMode, Data: append(mode, copyPacket, 0)},
		{Type: cfgFlush, Data: binary.BigEndian.AppendUint32(nil, 1)},
	} {
		b, err := netlink.MarshalAttributes([]netlink.Attribute{attr})
		if err != nil {
			return err
		}
		header := binary.BigEndian.AppendUint16([]byte{unix.AF_UNSPEC, 0}, group)
		_, err = c.Execute(netlink.Message{
			Header: netlink.Header{Type: logConfig, Flags: netlink.Request | netlink.Acknowledge},
			Data:   append(header, b...),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Run calls fn for every refused connection until ctx is done, and then closes r.
func (r *Refusals) Run(ctx context.Context, fn func(netpolicy.Refusal)) error {
	stop := context.AfterFunc(ctx, func() { _ = r.close() }) // ends Receive
	defer stop()
	for {
		messages, err := r.conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // the kernel dropped some reports
			continue
		case err != nil:
			return errors.Join(fmt.Errorf("cannot receive reports of refused connections: %w", err), r.close())
		}
		for _, m := range messages {
			if m.Header.Type != logPacket {
				continue
			}
			if refusal, ok := parseReport(m.Data); ok {
				fn(refusal)
			}
		}
	}
}

// Close stops listening.
func (r *Refusals) Close() error {
	if r == nil {
		return nil
	}
	return r.close()
}

// parseReport reads a message of the kernel about a refused packet.
func parseReport(b []byte) (netpolicy.Refusal, bool) {
	const header = 4 // family, version, group
	if len(b) < header {
		return netpolicy.Refusal{}, false
	}
	attrs, err := netlink.UnmarshalAttributes(b[header:])
	if err != nil {
		return netpolicy.Refusal{}, false
	}
	var refusal netpolicy.Refusal
	var payload []byte
	for _, a := range attrs {
		switch a.Type {
		case logPayload:
			payload = a.Data
		case logPrefix:
			refusal.Reason = netpolicy.Reason(strings.TrimRight(string(a.Data), "\x00"))
		}
	}
	return refusal, parsePacket(payload, &refusal)
}

// parsePacket reads the addresses and the port of an IPv4 packet.
func parsePacket(b []byte, into *netpolicy.Refusal) bool {
	const shortest, words = 20, 4
	if len(b) < shortest || b[0]>>4 != 4 {
		return false
	}
	into.Protocol = b[9]
	into.From = netip.AddrFrom4([4]byte(b[sourceOffset:]))
	into.To = netip.AddrFrom4([4]byte(b[destinationOffset:]))
	length := int(b[0]&0x0f) * words
	if length < shortest || len(b) < length+words {
		return length >= shortest // the addresses are known
	}
	switch transport := b[length:]; into.Protocol {
	case netpolicy.TCP, netpolicy.UDP:
		into.Port = binary.BigEndian.Uint16(transport[2:])
	case netpolicy.ICMP:
		into.Type, into.Code = transport[0], transport[1]
	}
	return true
}
