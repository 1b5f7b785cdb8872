// Command soak holds patterned memory of every kind in a sandbox and says,
// whenever it is asked, whether all of it is what it should be.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	page   = 4096
	socket = "/tmp/soak.sock"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "hold":
		err = hold(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "ask":
		err = ask(os.Args[2])
	default:
		err = errors.New("usage: soak hold MIB | soak ask COMMAND")
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// area is memory of which each page holds what generation and place say.
type area struct {
	name  string
	mem   []byte
	holes uint64 // every so manyth page was never written; 0: none
	gen   uint64
	order uint64 // seeds the order in which pages are visited
}

func (a *area) pages() int { return len(a.mem) / page }

func (a *area) hole(i int) bool { return a.holes > 0 && uint64(i)%a.holes == 0 && a.gen == 0 }

// word is what each word of page i is xored with its own number.
func (a *area) word(i int) uint64 { return (a.gen*1_000_003+uint64(i)+1)*0x9e3779b97f4a7c15 | 1 }

func (a *area) visit(fn func(i int, p []byte) error) error {
	a.order++
	order := rand.New(rand.NewPCG(a.order, uint64(len(a.mem)))).Perm(a.pages())
	for _, i := range order {
		if err := fn(i, a.mem[i*page:(i+1)*page]); err != nil {
			return fmt.Errorf("%s, generation %d, page %d of %d: %w", a.name, a.gen, i, a.pages(), err)
		}
	}
	return nil
}

func (a *area) write() {
	a.visit(func(i int, p []byte) error {
		if !a.hole(i) {
			for o := 0; o < page; o += 8 {
				binary.LittleEndian.PutUint64(p[o:], a.word(i)^uint64(o))
			}
		}
		return nil
	})
}

func (a *area) verify() error {
	return a.visit(func(i int, p []byte) error {
		hole := a.hole(i)
		for o := 0; o < page; o += 8 {
			want := a.word(i) ^ uint64(o)
			if hole {
				want = 0
			}
			if got := binary.LittleEndian.Uint64(p[o:]); got != want {
				return fmt.Errorf("word %d is %#x, want %#x", o/8, got, want)
			}
		}
		return nil
	})
}

func mapped(n int, flags int, fd int) []byte {
	b, err := syscall.Mmap(fd, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, flags)
	if err != nil {
		panic(err)
	}
	return b
}

type holder struct {
	mu      sync.Mutex
	areas   []*area
	rounds  atomic.Uint64
	broken  atomic.Value // error of a writer
	scratch []byte       // of churn
}

func hold(mib string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	const anon = syscall.MAP_PRIVATE | syscall.MAP_ANON
	shm, err := os.Create("/dev/shm/soak")
	if err != nil {
		return err
	}
	if err := shm.Truncate(4 << 20); err != nil {
		return err
	}
	h := &holder{areas: []*area{
		{name: "private", mem: mapped(n<<20, anon, -1)},
		{name: "private with holes", mem: mapped(n<<17, anon, -1), holes: 3},
		{name: "private with long holes", mem: mapped(16<<20, anon, -1)[5<<20 : 6<<20]},
		{name: "shared", mem: mapped(4<<20, syscall.MAP_SHARED|syscall.MAP_ANON, -1)},
		{name: "/dev/shm", mem: mapped(4<<20, syscall.MAP_SHARED, int(shm.Fd()))},
		{name: "heap", mem: make([]byte, 8<<20)},
	}}
	for _, a := range h.areas {
		a.write()
	}
	for i := range 3 {
		go h.keepWriting(uint64(i), mapped(2<<20, anon, -1))
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("holding")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		line, _ := bufio.NewReader(c).ReadString('\n')
		reply := "ok"
		if err := h.answer(strings.TrimSpace(line)); err != nil {
			reply = err.Error()
		}
		fmt.Fprintln(c, reply)
		c.Close()
	}
}

// keepWriting rewrites pages for ever and looks at what it has written before.
func (h *holder) keepWriting(seed uint64, mem []byte) {
	r := rand.New(rand.NewPCG(seed, seed))
	have := make([]uint64, len(mem)/page)
	for {
		i := r.IntN(len(have))
		p := unsafe.Slice((*uint64)(unsafe.Pointer(&mem[i*page])), page/8)
		for o, w := range p {
			if w != have[i] {
				h.broken.CompareAndSwap(nil, fmt.Errorf("writer %d: word %d of page %d is %d, want %d", seed, o, i, w, have[i]))
				return
			}
		}
		have[i] = r.Uint64()
		for o := range p {
			p[o] = have[i]
		}
		if h.rounds.Add(1)%64 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

func (h *holder) answer(cmd string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err, ok := h.broken.Load().(error); ok {
		return err
	}
	switch cmd {
	case "verify":
		return h.verify()
	case "write":
		for _, a := range h.areas {
			a.gen++
			a.write()
		}
		return h.verify()
	case "some": // a tenth of the pages, by their own number
		for _, a := range h.areas {
			a.some()
		}
		return nil
	case "churn":
		return h.churn()
	case "peek": // one page
		_, err := io.Discard.Write(h.areas[0].mem[:page])
		return err
	}
	return fmt.Errorf("unknown command %q", cmd)
}

// some rewrites a tenth of the pages with what they hold.
func (a *area) some() {
	a.visit(func(i int, p []byte) error {
		if i%10 == 0 && !a.hole(i) {
			for o := 0; o < page; o += 8 {
				binary.LittleEndian.PutUint64(p[o:], a.word(i)^uint64(o))
			}
		}
		return nil
	})
}

func (h *holder) verify() error {
	rounds := h.rounds.Load()
	for _, a := range h.areas {
		if err := a.verify(); err != nil {
			return err
		}
	}
	for range 100 {
		if h.rounds.Load() > rounds {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the writers stand still")
}

// churn changes mappings of memory that was there before in every way, and
// leaves all areas as they were.
func (h *holder) churn() error {
	a := h.areas[0]
	part := a.mem[len(a.mem)/4 : len(a.mem)/4+1<<20]
	if err := syscall.Mprotect(part, syscall.PROT_READ); err != nil {
		return fmt.Errorf("mprotect: %w", err)
	}
	if err := a.verify(); err != nil {
		return fmt.Errorf("read only: %w", err)
	}
	if err := syscall.Mprotect(part, syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC); err != nil {
		return fmt.Errorf("mprotect: %w", err)
	}
	a.some()
	if err := syscall.Mprotect(part, syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
		return fmt.Errorf("mprotect: %w", err)
	}
	if err := h.discard(); err != nil {
		return err
	}
	if err := h.move(); err != nil {
		return err
	}
	out, err := exec.Command("/bin/sh", "-c", "echo $(seq 1 100 | tail -n 1)").Output()
	if err != nil || strings.TrimSpace(string(out)) != "100" {
		return fmt.Errorf("exec: %q, %w", out, err)
	}
	return h.verify()
}

// discard gives memory back and finds zeros.
func (h *holder) discard() error {
	a := h.areas[1]
	part := a.mem[len(a.mem)/2 : len(a.mem)/2+300*page]
	if err := syscall.Madvise(part, syscall.MADV_DONTNEED); err != nil {
		return fmt.Errorf("madvise: %w", err)
	}
	for i, b := range part {
		if b != 0 {
			return fmt.Errorf("byte %d of what was given back is %#x", i, b)
		}
	}
	a.write()
	return nil
}

// move lets the last area but one grow elsewhere, cuts it, and moves it back.
func (h *holder) move() error {
	a := h.areas[0]
	n := len(a.mem)
	at := uintptr(unsafe.Pointer(&a.mem[0]))
	to, _, errno := syscall.Syscall6(syscall.SYS_MREMAP, at, uintptr(n), uintptr(n+1<<20), 1 /* MREMAP_MAYMOVE */, 0, 0)
	if errno != 0 {
		return fmt.Errorf("mremap: %w", errno)
	}
	if _, _, errno = syscall.Syscall6(syscall.SYS_MREMAP, to, uintptr(n+1<<20), uintptr(n), 0, 0, 0); errno != 0 {
		return fmt.Errorf("mremap: %w", errno)
	}
	a.mem = unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&to))), n)
	// What has no neighbours merges with none.
	h.scratch = mapped(1<<20, syscall.MAP_PRIVATE|syscall.MAP_ANON, -1)
	for i := range h.scratch {
		h.scratch[i] = byte(i)
	}
	if err := syscall.Munmap(h.scratch); err != nil {
		return fmt.Errorf("munmap: %w", err)
	}
	return nil
}

func ask(cmd string) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintln(c, cmd)
	b, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if reply := strings.TrimSpace(string(b)); reply != "ok" {
		return errors.New(reply)
	}
	return nil
}
