package credentials

import (
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// measure compares, from within a sandbox, a host whose requests get a credential
// with one that is only passed through. It prints medians.
const measure = `
import http.client, ssl, statistics, time
unchecked, trusting = ssl._create_unverified_context(), ssl.create_default_context()
def connect(host): return http.client.HTTPSConnection(host, context=trusting if host.startswith('api') else unchecked)
def ask(c, method='GET', path='/whoami', body=None):
    c.request(method, path, body=body); r = c.getresponse(); r.read(); assert r.status == 200
def median(n, f):
    times = []
    for _ in range(n):
        t = time.perf_counter(); f(); times.append(1000 * (time.perf_counter() - t))
    return statistics.median(times)
def fresh(host): c = connect(host); ask(c); c.close()
body = bytes(32 << 20)
for round in range(2):
    for host in ('other.upstream.example', 'api.upstream.example'):
        c = connect(host); ask(c)
        kept = median(200, lambda: ask(c))
        new = median(40, lambda: fresh(host))
        up = median(3, lambda: ask(c, 'PUT', '/upload', body))
        print(f'{host:24} request {kept:.2f} ms, with a new connection {new:.2f} ms, upload {32 * 1.048576 / up * 1000:.0f} MB/s')
`

// TestMeasure prints figures, of one run and machine alone.
func TestMeasure(t *testing.T) {
	if os.Getenv("BERTH_MEASURE") == "" {
		t.Skip("SKIPPED: it asserts nothing and takes a while; BERTH_MEASURE=1 has it print figures")
	}
	h := newHouse(t)
	if _, err := h.WriteFile(t.Context(), h.id, "/tmp/measure.py", sandbox.WriteOptions{}, strings.NewReader(measure)); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + h.run(h.id, "python3 /tmp/measure.py"))
}
