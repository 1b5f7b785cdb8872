package gvisor_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// indexedBytes is the length of the file that indexes of FuzzColdIndex speak of.
const indexedBytes = 1 << 20

// memoryOf makes a file in memory.
func memoryOf(t testing.TB, b []byte, size int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("cold", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "cold")
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

// coldIndexOf is an index of private memory: words, and for each file its size, for each
// piece where it begins and ends, its file and where it is there.
func coldIndexOf(words ...uint64) (b []byte) {
	const magic = 0x31646c6f63687462
	return wordsOf(append([]uint64{magic}, words...)...)
}

// summedIndexOf is one that sums follow.
func summedIndexOf(words ...uint64) []byte {
	b := coldIndexOf(words...)
	b[7] = '2'
	return b
}

func wordsOf(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func withSum(b []byte) []byte { return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b)) }

// FuzzColdIndex: whatever an index says whose sum is right, a page is read from within
// the file that it is said to be in, or nothing is opened. A page is not read if the
// sums of the file's blocks, which follow the index, are not those of the file.
func FuzzColdIndex(f *testing.F) {
	const page = 4096
	f.Add(coldIndexOf(0, 0, 0), []byte(nil))
	f.Add(coldIndexOf(1, 1, page, indexedBytes, 8*page, 9*page, 0, 0), []byte(nil))
	f.Add(coldIndexOf(2, 1, 3*page, indexedBytes, 8*page, 9*page, 0, indexedBytes-page, 9*page, 11*page, 0, 0), []byte(nil))
	f.Add(coldIndexOf(1, 1, page, indexedBytes, 8*page, 9*page, 0, indexedBytes), []byte(nil))
	f.Add(coldIndexOf(1, 1, page, 1<<63, 8*page, 9*page, 0, 0), []byte(nil))
	f.Add(coldIndexOf(1<<60, 1<<60, page), []byte(nil))
	f.Add(summedIndexOf(1, 1, page, indexedBytes, 8*page, 9*page, 0, 0), wordsOf(4, 0, 0, 0, 0))
	f.Add(summedIndexOf(1, 1, page, indexedBytes, 8*page, 9*page, 0, 0), wordsOf(0))
	f.Add(summedIndexOf(1, 1, page, indexedBytes, 8*page, 9*page, 0, 0), wordsOf(4, 1, 0, 0, 0))
	f.Add(summedIndexOf(1, 1, page, indexedBytes, 8*page, 9*page, 0, 0), wordsOf(1<<60, 0))
	mf, err := pgalloc.NewMemoryFile(memoryOf(f, nil, 0), pgalloc.MemoryFileOpts{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b, sums []byte) {
		if len(b) > 1<<16 || len(sums) > 1<<16 {
			return
		}
		b = withSum(b)
		if len(sums) > 0 {
			b = append(b, withSum(sums)...)
		}
		if mf.OpenCold(memoryOf(t, b, int64(len(b))), []*os.File{memoryOf(t, nil, indexedBytes)}, nil) != nil {
			return
		}
		defer func() {
			if r := recover(); r != nil && !strings.HasPrefix(fmt.Sprint(r), "saved memory is damaged: ") {
				panic(r)
			}
		}()
		c := mf.Cold()
		for all := (memmap.FileRange{End: 1 << 62}); ; {
			part := c.Next(all)
			if part.Length() == 0 {
				return
			}
			if part.Start < all.Start || part.End > all.End {
				t.Fatalf("%v is outside of %v", part, all)
			}
			err := c.EachPiece(part, func(_ memmap.File, in memmap.FileRange) error {
				if in.Start >= in.End || in.End > indexedBytes {
					t.Fatalf("%v is outside of the file", in)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("%v was said to be there: %v", part, err)
			}
			all.Start = part.End
		}
	})
}
