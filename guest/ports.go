package guest

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

const (
	maxPorts     = 256     // that one answer tells
	maxSocketTab = 4 << 20 // bytes of one table of sockets
	stateListen  = "0A"    // of a socket, in the tables
)

// portService answers the calls of v1.Ports.
type portService struct{ *Guest }

func (s *portService) ListPorts(_ context.Context, r *connect.Request[guestv1.ListPortsRequest]) (*connect.Response[guestv1.ListPortsResponse], error) {
	return answer(s.listPorts(r.Msg.Owners), nil)
}

// listening is one socket that takes connections.
type listening struct {
	at    netip.AddrPort
	inode string
}

func (g *Guest) listPorts(owners bool) *guestv1.ListPortsResponse {
	var all []listening
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		all = append(all, readSockets(table)...)
	}
	kernels := g.kernels.Ports()
	all = slices.DeleteFunc(all, func(l listening) bool { return kernels[l.at.Port()] })
	var held map[string]int
	if owners || g.scratch() {
		held = g.holders(all)
	}
	if g.scratch() { // the others are the host's
		all = slices.DeleteFunc(all, func(l listening) bool { return held[l.inode] == 0 })
	}
	return g.tellPorts(all, held)
}

// tellPorts picks one socket for each port: the one that is reached first.
func (g *Guest) tellPorts(all []listening, held map[string]int) *guestv1.ListPortsResponse {
	best := map[uint16]listening{}
	for _, l := range all {
		had, ok := best[l.at.Port()]
		if l.at.Port() != g.port && (!ok || reach(l.at.Addr()) < reach(had.at.Addr())) {
			best[l.at.Port()] = l
		}
	}
	answer := &guestv1.ListPortsResponse{}
	for _, port := range slices.Sorted(maps.Keys(best)) {
		if len(answer.Ports) == maxPorts {
			answer.More = true
			break
		}
		l := best[port]
		one := &guestv1.ListeningPort{Port: uint32(port), Address: l.at.Addr().String(), Pid: int32(held[l.inode])}
		if one.Pid != 0 {
			one.Command, _ = os.ReadFile("/proc/" + itoa(one.Pid) + "/comm") // it may have ended
			one.Command = bytes.TrimSpace(one.Command)
		}
		answer.Ports = append(answer.Ports, one)
	}
	return answer
}

// reach orders addresses by how far they can be reached from.
func reach(a netip.Addr) int {
	switch {
	case a.IsUnspecified():
		return 0
	case !a.IsLoopback():
		return 1
	}
	return 2
}

// readSockets reads the listening sockets of a table of the kernel's. One that is
// not there, or is cut, is as long as it is.
func readSockets(path string) []listening {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSocketTab))
	if err != nil {
		return nil
	}
	return parseSockets(b)
}

// parseSockets reads lines of "slot: local remote state … inode …", the addresses
// in hex.
func parseSockets(table []byte) []listening {
	var all []listening
	for line := range bytes.Lines(table) {
		f := bytes.Fields(line)
		if len(f) < 10 || string(f[3]) != stateListen {
			continue
		}
		if at, ok := parseEndpoint(string(f[1])); ok {
			all = append(all, listening{at, string(f[9])})
		}
	}
	return all
}

// parseEndpoint reads "0100007F:1F90": words in the order of the processor.
func parseEndpoint(s string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil || n == 0 {
		return netip.AddrPort{}, false
	}
	a, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), ok
}

// holders finds a process for each socket, by inode.
func (g *Guest) holders(sockets []listening) map[string]int {
	wanted := map[string]bool{}
	for _, l := range sockets {
		wanted[l.inode] = true
	}
	held := map[string]int{}
	for _, p := range processStats() {
		if len(held) == len(wanted) {
			break
		}
		if p.dead || g.scratch() && !g.marked(p.pid) {
			continue
		}
		folder := "/proc/" + strconv.Itoa(p.pid) + "/fd"
		descriptors, _ := os.ReadDir(folder) // it may have ended
		for _, d := range descriptors {
			link, _ := os.Readlink(folder + "/" + d.Name())
			inode, ok := strings.CutPrefix(link, "socket:[")
			inode = strings.TrimSuffix(inode, "]")
			if ok && wanted[inode] && held[inode] == 0 {
				held[inode] = p.pid
			}
		}
	}
	return held
}

// marked reports whether a process has the environment that this guest gives to
// all that it starts.
func (g *Guest) marked(pid int) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	all := bytes.Split(env, []byte{0})
	for name, value := range g.config.Env {
		if !slices.ContainsFunc(all, func(b []byte) bool { return string(b) == name+"="+value }) {
			return false
		}
	}
	return len(g.config.Env) > 0
}

// ownPort is the port that a listener has, or 0.
func ownPort(l net.Listener) uint16 {
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		return uint16(a.Port)
	}
	return 0
}
