package main

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The parts of <linux/kvm.h> that a boot needs; amd64.
const (
	kvmCreateVM      = 0xae01
	kvmGetVCPUSize   = 0xae04
	kvmCreateVCPU    = 0xae41
	kvmSetMemory     = 0x4020ae46
	kvmRun           = 0xae80
	kvmSetRegs       = 0x4090ae82
	kvmGetSregs      = 0x8138ae83
	kvmSetSregs      = 0x4138ae84
	kvmExitReasonAt  = 8 // offset in struct kvm_run
	kvmExitIO        = 2
	kvmExitInternal  = 17
	kvmExitIODataAt  = 40 // offset of io.data_offset in struct kvm_run
	kvmSregsSize     = 312
	kvmRegsSize      = 144
	kvmCodeAt        = 0x1000
	kvmGuestMemory   = 0x4000
	kvmProbePort     = 0x10
	kvmRegsRIPAt     = 128
	kvmRegsRFLAGSAt  = 136
	kvmSregsCSBaseAt = 0
	kvmSregsCSSelAt  = 12
)

// kvmCode counts bits in real mode and writes 42 to a port. A KVM that only
// emulates the privileged modes of its guests knows the plain instructions but
// not popcnt, as it lacks what every kernel uses.
var kvmCode = []byte{
	0x66, 0xbb, 0xff, 0xff, 0xff, 0xff, // mov ebx, -1
	0x66, 0xf3, 0x0f, 0xb8, 0xc3, //       popcnt eax, ebx
	0x04, 10, //                           add al, 10
	0xe6, kvmProbePort, //                 out port, al
}

// bootKVM runs kvmCode in a fresh virtual machine. A nil error means that the
// processor ran it and gave the right answer.
func bootKVM() error {
	kvm, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/kvm: %w", err)
	}
	defer unix.Close(kvm)
	vm, err := ioctl(kvm, kvmCreateVM, nil)
	if err != nil {
		return fmt.Errorf("create virtual machine: %w", err)
	}
	defer unix.Close(vm)
	memory, err := unix.Mmap(-1, 0, kvmGuestMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map guest memory: %w", err)
	}
	defer unix.Munmap(memory)
	copy(memory[kvmCodeAt:], kvmCode)
	region := struct {
		slot, flags           uint32
		at, size, userAddress uint64
	}{size: kvmGuestMemory, userAddress: uint64(uintptr(unsafe.Pointer(&memory[0])))}
	if _, err := ioctl(vm, kvmSetMemory, unsafe.Pointer(&region)); err != nil {
		return fmt.Errorf("give guest memory: %w", err)
	}
	cpu, err := ioctl(vm, kvmCreateVCPU, nil)
	if err != nil {
		return fmt.Errorf("create virtual processor: %w", err)
	}
	defer unix.Close(cpu)
	if err := setRegisters(cpu); err != nil {
		return err
	}
	size, err := ioctl(kvm, kvmGetVCPUSize, nil)
	if err != nil {
		return fmt.Errorf("ask size of run area: %w", err)
	}
	area, err := unix.Mmap(cpu, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map run area: %w", err)
	}
	defer unix.Munmap(area)
	return runGuest(cpu, area)
}

// setRegisters points the processor at the code, in real mode.
func setRegisters(cpu int) error {
	var sregs [kvmSregsSize]byte
	if _, err := ioctl(cpu, kvmGetSregs, unsafe.Pointer(&sregs)); err != nil {
		return fmt.Errorf("read registers: %w", err)
	}
	*(*uint64)(unsafe.Pointer(&sregs[kvmSregsCSBaseAt])) = 0
	*(*uint16)(unsafe.Pointer(&sregs[kvmSregsCSSelAt])) = 0
	if _, err := ioctl(cpu, kvmSetSregs, unsafe.Pointer(&sregs)); err != nil {
		return fmt.Errorf("set segment registers: %w", err)
	}
	var regs [kvmRegsSize]byte
	*(*uint64)(unsafe.Pointer(&regs[kvmRegsRIPAt])) = kvmCodeAt
	*(*uint64)(unsafe.Pointer(&regs[kvmRegsRFLAGSAt])) = 2 // the bit that is always set
	if _, err := ioctl(cpu, kvmSetRegs, unsafe.Pointer(&regs)); err != nil {
		return fmt.Errorf("set registers: %w", err)
	}
	return nil
}

// runGuest runs until the guest writes to its port, and checks what it wrote.
func runGuest(cpu int, area []byte) error {
	for {
		_, err := ioctl(cpu, kvmRun, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("run guest: %w", err)
		}
		break
	}
	switch reason := *(*uint32)(unsafe.Pointer(&area[kvmExitReasonAt])); reason {
	case kvmExitIO:
	case kvmExitInternal:
		return errors.New("run guest: KVM could not run an ordinary instruction")
	default:
		return fmt.Errorf("run guest: it stopped with reason %d instead of answering", reason)
	}
	at := *(*uint64)(unsafe.Pointer(&area[kvmExitIODataAt]))
	if at >= uint64(len(area)) || area[at] != 42 {
		return errors.New("run guest: it computed a wrong answer")
	}
	return nil
}

func ioctl(fd int, request uint, arg unsafe.Pointer) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}
