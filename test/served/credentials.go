package served

import (
	"bytes"
	"testing"

	"github.com/berth-dev/berth/netgw/intercept"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/secret"
)

// credentials are the parts of a server that keep secrets.
type credentials struct {
	vault *secret.Vault
	proxy *intercept.Proxy
}

// newCredentials keeps secrets in records. No sandbox's traffic reaches it.
func newCredentials(t testing.TB, records record.Store) (c credentials, err error) {
	t.Helper()
	sealer, err := secret.NewSealer(bytes.Repeat([]byte{1}, secret.KeySize))
	if err != nil {
		return c, err
	}
	c.vault = secret.NewVault(records, sealer, nil)
	c.proxy, err = intercept.New(intercept.Config{Secrets: c.vault, Grants: secret.NewGrants(records),
		Values: secret.NewValues(records, sealer), Records: records, Sealer: sealer})
	if err == nil {
		t.Cleanup(func() {
			if err := c.proxy.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return c, err
}
