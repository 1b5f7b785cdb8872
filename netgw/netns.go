package netgw

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives while one of its processes does
// or while this descriptor is open: it is bound to no path, so none can be left.
type Namespace struct{ f *os.File }

// Path names the namespace for other processes as long as it is open here.
func (n *Namespace) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.f.Fd())
}

// Close lets go of the namespace.
func (n *Namespace) Close() error { return n.f.Close() }

// NewNamespace makes a namespace with the sandbox's TAP in it, addressed as the
// engine expects to find it.
func NewNamespace() (*Namespace, error) {
	var n *Namespace
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare network: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return fmt.Errorf("open namespace: %w", err)
		}
		if err := furnish(); err != nil {
			f.Close()
			return err
		}
		n = &Namespace{f}
		return nil
	})
	return n, err
}

// NamespaceOf opens the namespace that a process lives in.
func NamespaceOf(pid int) (*Namespace, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("open namespace: %w", err)
	}
	return &Namespace{f}, nil
}

// within runs f on a thread inside the namespace. What f opens stays in it.
func (n *Namespace) within(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		return f()
	})
}

// onThread runs f on a thread of its own that ends with it, as a thread whose
// namespace was changed must never run anything else.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// furnish makes the TAP of the present thread's namespace and gives it the
// sandbox's address, route and neighbour, which the engine takes over.
func furnish() error {
	if err := quietIPv6(); err != nil {
		return err
	}
	fd, err := openTAP()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("make TAP persistent: %w", err)
	}
	return address()
}

func address() error {
	// A fresh handle: the package's own is bound to another namespace.
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	loopback, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := h.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	link, err := h.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find TAP: %w", err)
	}
	if err := h.LinkSetHardwareAddr(link, guestMAC); err != nil {
		return fmt.Errorf("set MAC: %w", err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	if err := addressFamily(h, link, GuestAddr, prefixBits, GatewayAddr); err != nil {
		return err
	}
	if !hasIPv6() {
		return nil
	}
	return addressFamily(h, link, GuestAddr6, prefixBits6, GatewayAddr6)
}

// addressFamily sets the sandbox's address, route and neighbour of one family.
func addressFamily(h *netlink.Handle, link netlink.Link, own netip.Addr, bits int, gateway netip.Addr) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: own.AsSlice(), Mask: net.CIDRMask(bits, own.BitLen())}}
	if own.Is6() {
		addr.Flags = unix.IFA_F_NODAD // nobody else is there
	}
	if err := h.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("set address: %w", err)
	}
	index := link.Attrs().Index
	if err := h.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: gateway.AsSlice(), HardwareAddr: gatewayMAC}); err != nil {
		return fmt.Errorf("set neighbour: %w", err)
	}
	if err := h.RouteAdd(&netlink.Route{LinkIndex: index, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("set route: %w", err)
	}
	return nil
}

// hasIPv6 reports whether this kernel speaks it.
func hasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}

// quietIPv6 keeps the kernel from speaking to the sandbox by itself: from giving
// the TAP an address of its own, and from asking for routers.
func quietIPv6() error {
	if !hasIPv6() {
		return nil
	}
	const conf = "/proc/sys/net/ipv6/conf/default/"
	for _, s := range []struct{ name, value string }{
		{"disable_ipv6", "0"}, {"addr_gen_mode", "1"}, {"accept_ra", "0"}, {"router_solicitations", "0"}, {"autoconf", "0"},
	} {
		if err := os.WriteFile(conf+s.name, []byte(s.value), 0); err != nil {
			return fmt.Errorf("quiet IPv6: %w", err)
		}
	}
	return nil
}

// settle makes the kernel take note, now, that somebody listens on the TAP of the
// present thread's namespace. Left to itself it may take a second, and drops what
// the sandbox sends meanwhile.
func settle() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at the TAP: %w", err)
	}
	defer unix.Close(fd)
	// To ask for the link's state brings it up to date.
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GLINK}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(req.name[:], device)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); e != 0 {
		return fmt.Errorf("look at the TAP: %w", e)
	}
	return nil
}

// openTAP attaches to the TAP of the present thread's namespace, made if it is
// not there. The flags must be the same each time.
func openTAP() (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(device)
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("attach TAP: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("set TAP offload: %w", err)
	}
	return fd, nil
}
