package snapshot

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"sync"
)

// maxNear bounds how many chunks are remembered.
const maxNear = 1 << 20

// near knows where chunks lie in folders that are ready, so that what another folder
// needs of them is not fetched. It is a hint and no more: what is found there is
// compared with the chunk's sum, and what is gone is fetched.
type near struct {
	mu      sync.Mutex
	places  map[Sum]nearPlace // by plain sum
	folders map[string][]Sum  // by the folder's path: what places say of it
}

// nearPlace is where a chunk's bytes lie.
type nearPlace struct {
	folder, file string
	offset       int64
}

// learn remembers what lies in a folder.
func (n *near) learn(folder string, m *Manifest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.places == nil {
		n.places, n.folders = map[Sum]nearPlace{}, map[string][]Sum{}
	}
	m.each(func(f *File, c *Chunk) {
		if _, ok := n.places[c.Plain]; ok || len(n.places) >= maxNear {
			return
		}
		n.places[c.Plain] = nearPlace{folder, f.Name, c.Offset}
		n.folders[folder] = append(n.folders[folder], c.Plain)
	})
}

// forget is for a folder that is removed.
func (n *near) forget(folder string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, sum := range n.folders[folder] {
		delete(n.places, sum)
	}
	delete(n.folders, folder)
}

// read fills buf with a chunk's bytes and reports whether it could.
func (n *near) read(c *Chunk, buf []byte) bool {
	n.mu.Lock()
	p, ok := n.places[c.Plain]
	n.mu.Unlock()
	if !ok || p.read(c, buf) {
		return ok
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.places[c.Plain] == p {
		delete(n.places, c.Plain)
	}
	return false
}

func (p nearPlace) read(c *Chunk, buf []byte) bool {
	f, err := os.Open(filepath.Join(p.folder, p.file))
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.ReadAt(buf, p.offset)
	return err == nil && Sum(sha256.Sum256(buf)) == c.Plain
}
