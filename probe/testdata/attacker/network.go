package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// patience limits a connection that gets no answer at all.
const patience = 20 * time.Second

// brief limits a connection whose packets are dropped. Something else must show why.
const brief = time.Second

func registerNetwork() {
	attempts["knock"] = func(q url.Values) string {
		_, err := net.DialTimeout("tcp", q.Get("to"), brief)
		if err == nil {
			return "connected"
		}
		return "no connection"
	}
	attempts["dial"] = func(q url.Values) string { return each(q["to"], func(to string) string { return dial("tcp", to) }) }
	attempts["udp"] = func(q url.Values) string { return each(q["to"], udp) }
	attempts["unix"] = func(q url.Values) string { return each(q["to"], func(to string) string { return dial("unix", to) }) }
	attempts["get"] = func(q url.Values) string { return get(q) }
	attempts["lookup"] = func(q url.Values) string {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		names, err := net.DefaultResolver.LookupHost(ctx, q.Get("name"))
		if err != nil {
			return "not found"
		}
		return strings.Join(names, " ")
	}
	attempts["transfer"] = func(q url.Values) string { return transfer(q.Get("server")) }
	attempts["raw"] = func(url.Values) string {
		_, raw := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
		_, packet := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300)
		return all(result(raw), result(packet))
	}
	attempts["sockets"] = func(url.Values) string {
		_, vsock := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
		_, alg := unix.Socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)
		return all(result(vsock), result(alg))
	}
	attempts["address"] = func(q url.Values) string {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err.Error()
		}
		addr, err := netlink.ParseAddr(q.Get("address") + "/32")
		if err != nil {
			return err.Error()
		}
		gateway := &netlink.Neigh{LinkIndex: eth.Attrs().Index, IP: addr.IP, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}, State: netlink.NUD_PERMANENT}
		return all(result(netlink.AddrAdd(eth, addr)), result(netlink.LinkSetDown(eth)), result(netlink.NeighSet(gateway)))
	}
	attempts["spoof"] = func(q url.Values) string { return spoof(q.Get("from"), q.Get("to")) }
}

func dial(network, to string) string {
	c, err := net.DialTimeout(network, to, patience)
	if err != nil {
		return result(err)
	}
	_ = c.Close()
	return "connected"
}

// udp sends packets until an answer or an error arrives.
func udp(to string) string {
	c, err := net.Dial("udp", to)
	if err != nil {
		return result(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("probe")); err != nil {
		return result(err)
	}
	if _, err := c.Read(make([]byte, 64)); err != nil {
		return result(err)
	}
	return "answered"
}

func get(q url.Values) string {
	r, err := http.NewRequest(q.Get("method"), q.Get("url"), strings.NewReader(q.Get("body")))
	if err != nil {
		return err.Error()
	}
	if host := q.Get("host"); host != "" {
		r.Host = host
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{Proxy: nil}}
	resp, err := client.Do(r)
	if err != nil {
		return result(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	if q.Get("show") != "" {
		return resp.Status + " " + string(b)
	}
	return resp.Status
}

// spoof sends a packet with the address of another instance.
func spoof(from, to string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return result(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	transparent := result(unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1))
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1); err != nil {
		return all(transparent, result(err))
	}
	var source, target unix.SockaddrInet4
	copy(source.Addr[:], net.ParseIP(from).To4())
	copy(target.Addr[:], net.ParseIP(to).To4())
	target.Port = 9
	if err := unix.Bind(fd, &source); err != nil {
		return all(transparent, result(err))
	}
	return all(transparent, result(unix.Sendto(fd, []byte("probe"), 0, &target)))
}

// transfer asks a DNS server for a whole zone, over TCP.
func transfer(server string) string {
	c, err := net.DialTimeout("tcp", server, patience)
	if err != nil {
		return result(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	query := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, label := range []string{"apps", "internal"} {
		query = append(append(query, byte(len(label))), label...)
	}
	query = append(query, 0, 0, 252, 0, 1) // AXFR IN
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return result(err)
	}
	answer := make([]byte, 14)
	if _, err := io.ReadFull(c, answer); err != nil {
		return "closed"
	}
	if n := binary.BigEndian.Uint16(answer[8:]); n > 0 {
		return "records"
	}
	return "no records"
}
