package e2b

import (
	"bufio"
	"strings"
	"testing"
)

func TestHomeIn(t *testing.T) {
	const list = "root:x:0:0:root:/root:/bin/bash\n\nbroken\nodd:x:7:7::relative:/bin/sh\nnode:x:1001:1001::/srv/node:/bin/sh\nnode:x:1002:1002::/later:/bin/sh\n"
	for name, want := range map[string]string{"node": "/srv/node", "1001": "/srv/node", "root": "/root", "odd": "", "x": "", "": "", "broken": "", "nobody": ""} {
		if home, ok, err := homeIn(strings.NewReader(list), name); home != want || ok != (want != "") || err != nil {
			t.Errorf("%q lives in %q, %v, %v, want %q", name, home, ok, err, want)
		}
	}
	if _, ok, err := homeIn(strings.NewReader(strings.Repeat("x", bufio.MaxScanTokenSize+1)), "x"); ok || err != nil {
		t.Errorf("of what is no list: %v, %v", ok, err)
	}
}
