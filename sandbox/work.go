package sandbox

import (
	"context"
	"crypto/sha256"
	"math/bits"
	"strconv"
)

// Solve does the work of a challenge. It takes one core about 2^Bits sums of
// SHA-256, and ends with ctx.
func (c Challenge) Solve(ctx context.Context) (solution string, err error) {
	text := append([]byte(c.Challenge), ':')
	for n := uint64(0); ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return "", &Error{Op: "solve challenge", Err: context.Cause(ctx)}
		}
		solution := strconv.FormatUint(n, 36)
		if LeadingZeros(sha256.Sum256(append(text, solution...))) >= c.Bits {
			return solution, nil
		}
	}
}

// LeadingZeros is how many zero bits a sum begins with.
func LeadingZeros(sum [sha256.Size]byte) int {
	n := 0
	for _, b := range sum {
		n += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return n
}
