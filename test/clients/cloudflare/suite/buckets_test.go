package suite

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/berth-dev/berth/blob/s3/s3test"
	"github.com/berth-dev/berth/test/rig"
)

// bucketAddress is where sandboxes and Workers alike reach the S3 server. This machine has it
// for as long as a test runs, and the operator opens it to the sandboxes.
const bucketAddress = "198.18.79.2"

// bucketName is the server's name for backups: the package signs their URLs for the hosts of a
// few vendors alone. It leads sandboxes there, and whoever asks their name server.
const bucketName = "suite.r2.cloudflarestorage.com"

// nameServer is who is asked for the names that sandboxes look up.
const nameServer = "127.79.0.2:5379"

// buckets runs an S3 server with an empty bucket, files, and gives what a Worker needs to find
// it. Its https is for sandboxes alone.
func buckets(t *testing.T) (env []string) {
	t.Helper()
	t.Setenv("VGW_REGION", "auto") // of the server: the package signs for that one
	s := s3test.Start(t, "")
	if err := os.Mkdir(filepath.Join(filepath.Dir(s.Folder), "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	rig.Address(t, bucketAddress)
	door := &httputil.ReverseProxy{
		// The host's name is signed: it must arrive as it was sent.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", to.Host, r.In.Host
		},
	}
	certificate, roots := rig.Certificate(t, bucketName)
	ca, err := os.ReadFile(roots)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", bucketAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	secure, err := tls.Listen("tcp", bucketAddress+":0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	answerNames(t)
	_, port, _ := net.SplitHostPort(secure.Addr().String())
	web := &http.Server{Handler: door}
	t.Cleanup(func() { web.Close() })
	go web.Serve(plain)  // until it is closed
	go web.Serve(secure) // until it is closed
	return []string{"S3_HTTP=http://" + plain.Addr().String(), "S3_HTTPS=https://" + bucketName + ":" + port, "S3_CA=" + string(ca),
		"S3_KEY=" + s3test.AccessKey, "S3_SECRET=" + s3test.SecretKey}
}

// answerNames runs a name server that knows the S3 server's name, and asks the system's for
// all others.
func answerNames(t *testing.T) {
	t.Helper()
	system, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		t.Fatal(err)
	}
	rig.Names(t, nameServer, func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if ask := q.Question[0]; strings.EqualFold(ask.Name, bucketName+".") {
			if ask.Qtype == dns.TypeA {
				m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: ask.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(bucketAddress)}}
			}
		} else if r, err := dns.Exchange(q, net.JoinHostPort(system.Servers[0], system.Port)); err == nil {
			m = r
		} else {
			m.Rcode = dns.RcodeServerFailure
		}
		w.WriteMsg(m)
	})
}
