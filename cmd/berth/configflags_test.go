package main

import (
	"reflect"
	"testing"

	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/config"
)

// TestFlagsWinOverTheFile reads the same settings from flags and from a file.
func TestFlagsWinOverTheFile(t *testing.T) {
	c, err := config.Parse([]byte(`
[https]
listen = "127.0.0.1:1443"
preview_url = "https://file.example.com"
[acme]
enabled = true
[egress]
allow = ["10.1.0.0/16", "10.2.0.1"]
deny = ["192.0.2.0/24"]
connections = 7
handler_urls = true
[egress.handlers]
b = "/usr/lib/b --with argument"
a = "https://a.example.com/x,y"
[audit]
size = "64MiB"
days = 3
`))
	if err != nil {
		t.Fatal(err)
	}
	var f serveFlags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.egress.register(flags)
	f.ingress.register(flags)
	f.credentials.register(flags)
	if err := flags.Parse([]string{"--preview-url", "https://flag.example.com", "--egress-deny", "198.51.100.0/24", "--audit-days", "90"}); err != nil {
		t.Fatal(err)
	}
	if err := settle(flags, doorSettings(&c)); err != nil {
		t.Fatal(err)
	}
	want := serveFlags{
		egress:      egressFlags{allow: []string{"10.1.0.0/16", "10.2.0.1/32"}, deny: []string{"198.51.100.0/24"}, flows: 7, auditKeep: "67108864B", auditDays: 90},
		ingress:     ingressFlags{https: "127.0.0.1:1443", previewURL: "https://flag.example.com", acme: true},
		credentials: credentialFlags{handlers: []string{"a=https://a.example.com/x,y", "b=/usr/lib/b --with argument"}, urls: true},
	}
	if !reflect.DeepEqual(f.egress, want.egress) || !reflect.DeepEqual(f.ingress, want.ingress) || !reflect.DeepEqual(f.credentials, want.credentials) {
		t.Errorf("%+v\n%+v\n%+v", f.egress, f.ingress, f.credentials)
	}
	if _, err := f.egress.config(); err != nil {
		t.Error(err)
	}
	if log, err := f.egress.openAudit(t.TempDir()); err != nil {
		t.Error(err)
	} else if err := log.Close(); err != nil {
		t.Error(err)
	}
	var none config.File
	if err := settle(flags, doorSettings(&none)); err != nil || f.egress.flows != 7 {
		t.Errorf("an empty file changes %+v: %v", f.egress, err)
	}
}
