package kernel

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
)

func TestSpecs(t *testing.T) {
	for _, bad := range []string{``, `[]`, `{"argv": [], "language": "x"}`, `{"argv": ["x"], "language": "x"}`, `{"argv": ["x", "{connection_file}"]}`,
		`{"argv": ["", "{connection_file}"], "language": "x"}`} {
		if _, err := parseSpec([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	s, err := parseSpec([]byte(`{"argv": ["x", "-f{connection_file}"], "language": "TypeScript", "interrupt_mode": "message"}`))
	if err != nil || s.Language != "typescript" || !s.ByName || s.TCP {
		t.Errorf("%+v, %v", s, err)
	}
	if got, err := find([]Spec{s}, "javascript"); err != nil || got.Language != "typescript" {
		t.Errorf("JavaScript runs in %+v, %v", got, err)
	}
}

func TestSetting(t *testing.T) {
	env, base := map[string]string{"A": `it's "1"`, "B": "2"}, map[string]string{"B": "old"}
	for language, want := range map[string][2]string{
		"python": {"__import__(\"os\").environ[\"A\"] = \"it's \\\"1\\\"\"\n__import__(\"os\").environ[\"B\"] = \"2\"",
			"__import__(\"os\").environ.pop(\"A\", None)\n__import__(\"os\").environ[\"B\"] = \"old\""},
		"bash": {"export 'A=it'\\''s \"1\"'\nexport 'B=2'", "unset 'A'\nexport 'B=old'"},
	} {
		if got := [2]string{setting(language, env, base, false), setting(language, env, base, true)}; got != want {
			t.Errorf("%s: %q, want %q", language, got, want)
		}
	}
}

// FuzzMessage holds whatever a kernel sends, rightly signed, to its bounds.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"msg_id":"a","msg_type":"display_data"}`), []byte(`{"msg_id":"b"}`), []byte(`{"data":{"image/png":"aGk=","a/b+json":[1]},"transient":{"display_id":"d"}}`))
	f.Add([]byte(`{}`), []byte(``), []byte(`{"data":{"text/html":["a","b"]}}`))
	f.Fuzz(func(t *testing.T, head, parent, content []byte) {
		k := signer("key")
		parts := [][]byte{[]byte(delimiter), k.sum(head, parent, nil, content), head, parent, nil, content}
		m, err := k.decode(parts)
		if err != nil {
			return
		}
		if r, ok := resultOf(m.Content); ok && (len(r.Forms) > maxForms || r.size() > maxFormBytes+maxForms*256+maxDisplayID) {
			t.Errorf("a result of %d forms, %d bytes", len(r.Forms), r.size())
		}
		turn := &turn{k: &interpreter{}, run: &Run{log: newLog()}, id: m.Parent}
		for _, kind := range []string{"stream", "execute_result", "display_data", "error", "status", "clear_output", m.Type} {
			turn.published(message{kind, m.Parent, m.Content})
		}
		turn.reply(m.Content)
		parts[1] = k.sum(head)
		if _, err := k.decode(parts); err == nil {
			t.Error("a wrong signature is taken")
		}
	})
}

// FuzzSocket reads any bytes as frames, to the end.
func FuzzSocket(f *testing.F) {
	var good bytes.Buffer
	a, b := net.Pipe()
	go func() {
		(&socket{conn: a}).Send([][]byte{[]byte("one"), bytes.Repeat([]byte("x"), 300)})
		a.Close()
	}()
	io.Copy(&good, b)
	f.Add(good.Bytes())
	f.Add([]byte{flagLong, 0, 0, 0, 0, 0xff, 0, 0, 0, 1})
	f.Add([]byte{flagCommand, 2, 'h', 'i', 0, 1, 'x'})
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := net.Pipe()
		go func() {
			a.Write(in)
			a.Close()
		}()
		s := testSocket(b)
		defer s.Close()
		for {
			parts, err := s.Recv()
			if err != nil && err != errTooLarge {
				return
			}
			total := 0
			for _, p := range parts {
				total += len(p)
			}
			if total > len(in) {
				t.Fatalf("%d bytes of %d", total, len(in))
			}
		}
	})
}

func testSocket(c net.Conn) *socket { return &socket{conn: c, r: bufio.NewReader(c)} }
