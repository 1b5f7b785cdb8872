package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	logBytes = 1 << 20
	os.Exit(m.Run())
}

// shorten lowers a bound on time until the test ends.
func shorten(t *testing.T, bound *time.Duration) {
	t.Helper()
	old := *bound
	*bound = 500 * time.Millisecond
	t.Cleanup(func() { *bound = old })
}

// script is a starter of kernels that are goroutines of the test. What such a kernel
// does the code says, a word a line.
type script struct {
	t        *testing.T
	mu       sync.Mutex
	kernels  []*scripted
	unstarts int // kernels that end at once
}

func (s *script) Dir(content func(string) ([]byte, error)) (string, error) {
	dir, err := os.MkdirTemp("", "k") // a socket's path must be short
	if err != nil {
		return "", err
	}
	b, err := content(dir)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "connection.json"), b, 0o600)
	}
	return dir, err
}

func (s *script) Remove(dir string) { os.RemoveAll(dir) }

func (s *script) Start(argv []string, _ map[string]string) (Process, error) {
	b, err := os.ReadFile(argv[len(argv)-1])
	if err != nil {
		return nil, err
	}
	k := &scripted{done: make(chan struct{}), interrupts: make(chan struct{}, 8), env: map[string]string{}}
	if err := json.Unmarshal(b, &k.where); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kernels = append(s.kernels, k)
	if s.unstarts > 0 {
		s.unstarts--
		k.end("ended with exit code 3")
		return k, nil
	}
	return k, k.listen()
}

func (s *script) last() *scripted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kernels[len(s.kernels)-1]
}

// scripted is a kernel.
type scripted struct {
	where      connection
	done       chan struct{}
	interrupts chan struct{}
	env        map[string]string
	count      int
	later      []func() // what is published once the next code comes

	mu        sync.Mutex
	how       string
	listeners []net.Listener
	conns     []*socket
	iopub     *socket
	subbed    chan struct{}
}

func (k *scripted) PID() int              { return 4711 }
func (k *scripted) Done() <-chan struct{} { return k.done }
func (k *scripted) Ports() []uint16       { return nil }
func (k *scripted) Kill()                 { k.end("was killed by SIGKILL") }

func (k *scripted) How() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.how
}

func (k *scripted) Interrupt() error {
	select {
	case k.interrupts <- struct{}{}:
	default:
	}
	return nil
}

// end ends the kernel, as a process ends: with its sockets.
func (k *scripted) end(how string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.how != "" {
		return
	}
	k.how = how
	close(k.done)
	for _, l := range k.listeners {
		l.Close()
	}
	for _, c := range k.conns {
		c.Close()
	}
}

func (k *scripted) listen() error {
	k.subbed = make(chan struct{})
	for i, port := range []int{k.where.Shell, k.where.IOPub, k.where.Control} {
		network, address := k.where.address(port)
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.listeners = append(k.listeners, l)
		k.mu.Unlock()
		go k.accept(l, i)
	}
	return nil
}

func (k *scripted) accept(l net.Listener, channel int) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s, err := newSocket(conn, []string{"ROUTER", "PUB", "ROUTER"}[channel])
		if err != nil {
			continue
		}
		k.mu.Lock()
		k.conns = append(k.conns, s)
		if k.how != "" {
			s.Close()
		}
		k.mu.Unlock()
		go k.serve(s, channel)
	}
}

func (k *scripted) serve(s *socket, channel int) {
	for {
		parts, err := s.Recv()
		if err != nil {
			return
		}
		if channel == iopub {
			k.mu.Lock()
			k.iopub = s
			k.mu.Unlock()
			close(k.subbed)
			continue
		}
		<-k.subbed
		k.handle(s, parts)
	}
}

// reply signs and sends a message.
func (k *scripted) reply(s *socket, key, parent, kind string, content any) error {
	head, _ := json.Marshal(header{ID: "x", Type: kind})
	above, _ := json.Marshal(header{ID: parent})
	body, err := json.Marshal(content)
	if err != nil {
		return err
	}
	parts := [][]byte{head, above, []byte("{}"), body}
	return s.Send(append([][]byte{[]byte("topic"), []byte(delimiter), signer(key).sum(parts...)}, parts...))
}

type thing = map[string]any

// handle answers a request.
func (k *scripted) handle(s *socket, parts [][]byte) {
	var head header
	var ask executeRequest
	if json.Unmarshal(parts[2], &head) != nil || json.Unmarshal(parts[5], &ask) != nil {
		return
	}
	publish := func(kind string, content any) { k.reply(k.iopub, k.where.Key, head.ID, kind, content) }
	publish("status", thing{"execution_state": "busy"})
	switch head.Type {
	case "kernel_info_request":
		k.reply(s, k.where.Key, head.ID, "kernel_info_reply", thing{"status": "ok"})
	case "execute_request":
		for _, f := range k.later {
			f()
		}
		k.later = nil
		if !ask.Silent {
			k.count++
			publish("execute_input", thing{"code": ask.Code})
		}
		answer := thing{"status": "ok", "execution_count": k.count}
		for line := range strings.SplitSeq(ask.Code, "\n") {
			verb, rest, _ := strings.Cut(line, " ")
			if !k.do(verb, rest, head.ID, s, answer, publish) {
				return
			}
			if answer["status"] != "ok" {
				break
			}
		}
		k.reply(s, k.where.Key, head.ID, "execute_reply", answer)
	}
	publish("status", thing{"execution_state": "idle"})
}

// do does one line of code; false: there is no answer.
func (k *scripted) do(verb, rest, id string, s *socket, answer thing, publish func(string, any)) bool {
	raise := func(name, value string) {
		publish("error", thing{"ename": name, "evalue": value, "traceback": []string{"line 1", name}})
		answer["status"], answer["ename"], answer["evalue"] = "error", name, value
	}
	switch verb {
	case "print":
		publish("stream", thing{"name": "stdout", "text": rest})
	case "warn":
		publish("stream", thing{"name": "stderr", "text": rest})
	case "value":
		publish("execute_result", thing{"data": thing{"text/plain": rest, "application/json": thing{"v": rest}}})
	case "show":
		publish("display_data", thing{"data": thing{"image/png": "aGk=\n", "text/html": []string{"<b>", rest, "</b>"}}})
	case "raise":
		raise("ValueError", rest)
	case "late": // after the word that it is idle
		k.later = append(k.later, func() { publish("stream", thing{"name": "stdout", "text": rest}) })
	case "late-value":
		k.later = append(k.later, func() { publish("execute_result", thing{"data": thing{"text/plain": rest}}) })
	case "quiet-raise": // as kernels that tell an error in the answer alone
		answer["status"], answer["ename"], answer["evalue"] = "error", "1", rest
	case "wait":
		select {
		case <-k.interrupts:
			raise("KeyboardInterrupt", "")
		case <-k.done:
			return false
		}
	case "deaf":
		<-k.done
		return false
	case "die":
		k.end("was killed by SIGSEGV")
		return false
	case "flood":
		n, _ := strconv.Atoi(rest)
		for range n {
			publish("stream", thing{"name": "stdout", "text": strings.Repeat("x", 100<<10)})
		}
	case "stray": // what belongs to nobody, or comes out of order
		k.reply(k.iopub, k.where.Key, "another", "stream", thing{"name": "stdout", "text": "not mine"})
		k.reply(k.iopub, "wrong key", id, "stream", thing{"name": "stdout", "text": "forged"})
		k.iopub.Send([][]byte{[]byte("no delimiter")})
		k.reply(k.iopub, k.where.Key, id, "stream", "not an object")
		k.reply(k.iopub, k.where.Key, id, "execute_result", thing{"data": 5})
		k.reply(k.iopub, k.where.Key, id, "unheard of", thing{})
	case "huge":
		k.iopub.Send([][]byte{make([]byte, maxMessage+1)})
	case "endless": // a frame that says it is longer than any memory
		k.iopub.conn.Write([]byte{flagLong, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	case "mute": // an answer, but no word that it is idle
		k.reply(s, k.where.Key, id, "execute_reply", answer)
		return false
	case "unanswered": // no answer, but a word that it is idle
		publish("status", thing{"execution_state": "idle"})
		return false
	case "set":
		name, value, _ := strings.Cut(rest, "=")
		k.env[name] = value
	case "unset":
		delete(k.env, rest)
	case "env":
		publish("stream", thing{"name": "stdout", "text": k.env[rest]})
	}
	return true
}

func init() {
	movers["scripted"] = func(cwd string) string { return "set CWD=" + cwd }
	setters["scripted"] = func(name string, value *string) string {
		if value == nil {
			return "unset " + name
		}
		return "set " + name + "=" + *value
	}
}

// newScripted makes a set, and what contexts of scripted kernels begin with.
func newScripted(t *testing.T) (*Set, *script, Options) {
	t.Helper()
	s, set := &script{t: t}, NewSet()
	t.Cleanup(func() {
		set.Close()
		for _, k := range s.kernels {
			select {
			case <-k.done:
			default:
				t.Error("a kernel outlives its context")
			}
		}
	})
	return set, s, Options{Language: "scripted", Folders: newFolders(t), Starter: s, Env: map[string]string{"KEPT": "own"}}
}

// newFolders are folders with the kernelspec of scripted kernels.
func newFolders(t *testing.T) []string {
	t.Helper()
	return []string{scriptedSpec(t, "", ""), "/nowhere"}
}

// scriptedSpec is a folder with the kernelspec of scripted kernels that run a prelude
// and have a fence.
func scriptedSpec(t *testing.T, prelude, fence string) string {
	t.Helper()
	dir := t.TempDir()
	spec := fmt.Sprintf(`{"argv": ["x", %q, "{connection_file}"], "language": "Scripted", "metadata": {"berth_prelude": %q, "berth_fence": %q}}`, dir, prelude, fence)
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "scripted"), 0o755),
		os.WriteFile(filepath.Join(dir, "scripted", "kernel.json"), []byte(spec), 0o644)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// read reads a run to its end, and gives what it did as lines.
func read(t *testing.T, r *Run) (all []string, end End) {
	t.Helper()
	c, ok := r.Read(0)
	if !ok {
		t.Fatal("no run is read from its beginning")
	}
	defer c.Close()
	late := time.After(time.Minute)
	for {
		e, ok := c.Next()
		if !ok {
			select {
			case <-c.Wake():
				continue
			case <-late:
				t.Fatalf("the run did not end; so far %q", all)
			}
		}
		if e.Kind == Ended {
			return all, *e.End
		}
		all = append(all, tell(e))
	}
}

func tell(e Event) string {
	switch e.Kind {
	case Stdout:
		return "out " + e.Text
	case Stderr:
		return "err " + e.Text
	case Shown:
		s := fmt.Sprintf("shown main=%v", e.Result.Main)
		for _, f := range e.Result.Forms {
			s += fmt.Sprintf(" %s json=%v %s", f.Type, f.JSON, f.Data)
		}
		return s
	case Raised:
		return fmt.Sprintf("raised %s %s %d", e.Error.Name, e.Error.Value, len(e.Error.Traceback))
	case Missed:
		return fmt.Sprintf("missed %d", e.Missed)
	}
	return fmt.Sprintf("kind %d", e.Kind)
}
