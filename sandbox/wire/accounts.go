package wire

import "github.com/berth-dev/berth/sandbox"

// Keys is the answer of GET /v1/keys.
type Keys struct {
	Keys []sandbox.Key `json:"keys"`
}

// Accounts is the answer of GET /v1/accounts.
type Accounts struct {
	Accounts []sandbox.Account `json:"accounts"`
}

// AccountUpdate is the body of PATCH /v1/accounts/{account}.
type AccountUpdate struct {
	Quota sandbox.QuotaUpdate `json:"quota"`
}
