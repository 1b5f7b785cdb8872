package api

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Accounts lets callers in and keeps what they are let in with.
type Accounts interface {
	Enter(ctx context.Context, key string) (_ context.Context, leave func(), err error)
	EnterAs(ctx context.Context, account string) (_ context.Context, leave func(), err error)

	CreateKey(ctx context.Context, req sandbox.KeyRequest) (sandbox.NewKey, error)
	Keys(ctx context.Context) ([]sandbox.Key, error)
	UpdateKey(ctx context.Context, id string, u sandbox.KeyUpdate) (sandbox.Key, error)
	RemoveKey(ctx context.Context, id string) error

	CreateAccount(ctx context.Context, req sandbox.AccountRequest) (sandbox.Account, error)
	Account(ctx context.Context, id string) (sandbox.Account, error)
	Accounts(ctx context.Context) ([]sandbox.Account, error)
	SetQuota(ctx context.Context, id string, u sandbox.QuotaUpdate) (sandbox.Account, error)
	RemoveAccount(ctx context.Context, id string) error

	Challenge(ctx context.Context, from netip.Addr) (sandbox.Challenge, error)
	MakeTemporary(ctx context.Context, from netip.Addr, req sandbox.TemporaryRequest) (_ sandbox.TemporaryAccount, claim string, err error)
	Claimable(ctx context.Context, claim string) (sandbox.Account, error)
	Claim(ctx context.Context, claim string) (sandbox.NewKey, error)
}

func noAccounts() error {
	return sandbox.Errorf("find accounts", sandbox.Unsupported, "this server has one account alone")
}

// book returns the accounts, or Unsupported.
func (a *API) book() (Accounts, error) {
	if a.accounts == nil {
		return nil, noAccounts()
	}
	return a.accounts, nil
}

func (a *API) createKey(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	var req sandbox.KeyRequest
	if err := decode(w, r, &req); err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	k, err := book.CreateKey(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/keys/"+k.ID)
	return writeJSON(w, http.StatusCreated, k)
}

func (a *API) keys(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	all, err := book.Keys(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Keys{Keys: all})
}

func (a *API) updateKey(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	var u sandbox.KeyUpdate
	if err := decode(w, r, &u); err != nil {
		return err
	}
	k, err := book.UpdateKey(r.Context(), r.PathValue("key"), u)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, k)
}

func (a *API) removeKey(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err == nil {
		err = book.RemoveKey(r.Context(), r.PathValue("key"))
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) createAccount(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	var req sandbox.AccountRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	one, err := book.CreateAccount(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/accounts/"+one.ID)
	return writeJSON(w, http.StatusCreated, one)
}

func (a *API) allAccounts(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	all, err := book.Accounts(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Accounts{Accounts: all})
}

func (a *API) ownAccount(w http.ResponseWriter, r *http.Request) error {
	return a.showAccount(w, r, "")
}

func (a *API) account(w http.ResponseWriter, r *http.Request) error {
	return a.showAccount(w, r, r.PathValue("account"))
}

func (a *API) showAccount(w http.ResponseWriter, r *http.Request, id string) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	one, err := book.Account(r.Context(), id)
	if err != nil {
		return err
	}
	if a.used != nil {
		used := a.used(one.ID)
		one.Used = &used
	}
	return writeJSON(w, http.StatusOK, one)
}

func (a *API) setQuota(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	var req wire.AccountUpdate
	if err := decode(w, r, &req); err != nil {
		return err
	}
	one, err := book.SetQuota(r.Context(), r.PathValue("account"), req.Quota)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, one)
}

func (a *API) removeAccount(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err == nil {
		err = book.RemoveAccount(r.Context(), r.PathValue("account"))
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// from is the address that a request came from. Headers that claim another one
// are not believed.
func from(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr()
}

func (a *API) challenge(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	c, err := book.Challenge(r.Context(), from(r))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c)
}

func (a *API) makeTemporary(w http.ResponseWriter, r *http.Request) error {
	book, err := a.book()
	if err != nil {
		return err
	}
	var req sandbox.TemporaryRequest
	if err := decode(w, r, &req); err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	made, claim, err := book.MakeTemporary(r.Context(), from(r), req)
	if err != nil {
		return err
	}
	made.ClaimURL = a.address(r) + "/claim/" + claim
	return writeJSON(w, http.StatusCreated, made)
}

// address is where the server is reached: as configured, or as it was this time.
func (a *API) address(r *http.Request) string {
	if a.claimURL != "" {
		return strings.TrimSuffix(a.claimURL, "/")
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
