#include "go_asm.h"
#include "textflag.h"

// func vfork(s *spawning) (pid uintptr)
//
// The child runs on the caller's stack and memory while the caller waits, so it
// changes neither: it makes the system calls of s one after the other, and if one
// is refused it writes down why, and ends. The last replaces the program.
TEXT ·vfork(SB),NOSPLIT,$0-16
	MOVQ	s+0(FP), R12
	LEAQ	spawning_how(R12), DI
	MOVQ	$cloneArgs__size, SI
	MOVQ	$435, AX // clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, pid+8(FP)
	RET
child:
	LEAQ	spawning_steps(R12), R13
step:
	MOVQ	0(R13), AX
	MOVQ	8(R13), DI
	MOVQ	16(R13), SI
	MOVQ	24(R13), DX
	MOVQ	32(R13), R10
	SYSCALL
	CMPQ	AX, $0xfffffffffffff001
	JCC	refused
	ADDQ	$kernelCall__size, R13
	JMP	step
refused:
	NEGQ	AX
	MOVQ	AX, spawning_errno(R12)
end:
	MOVQ	$231, AX // exit_group
	MOVQ	$127, DI
	SYSCALL
	JMP	end
