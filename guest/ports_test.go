package guest

import (
	"fmt"
	"testing"
)

const socketTable = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0200C80A:0001 0100C80A:A2B4 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 20 4 30 10 -1
   2: 00000000000000000000000001000000:0BB8 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4713 1 0 100 0 0 10 0
   3: 0000000000000000FFFF00000100007F:1F91 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4714 1 0 100 0 0 10 0
   4: 0100007F:0000 00000000:0000 0A
`

func TestParseSockets(t *testing.T) {
	var got string
	for _, l := range parseSockets([]byte(socketTable)) {
		got += fmt.Sprint(l.at.String(), " ", l.inode, "; ")
	}
	if want := "127.0.0.1:8080 4711; [::1]:3000 4713; 127.0.0.1:8081 4714; "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// FuzzParseSockets: whatever the table holds, what is read is a port.
func FuzzParseSockets(f *testing.F) {
	f.Add([]byte(socketTable))
	f.Add([]byte("0: 0:0 0:0 0A a b c d e 1"))
	f.Fuzz(func(t *testing.T, table []byte) {
		for _, l := range parseSockets(table) {
			if !l.at.IsValid() || l.at.Port() == 0 || l.at.Addr().Is4In6() {
				t.Errorf("%v", l)
			}
		}
	})
}
