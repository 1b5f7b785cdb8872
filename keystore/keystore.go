// Package keystore adds a certificate to the lists of authorities that Java keeps,
// in either of their forms. What is there already stays as it is, byte by byte.
//
// It is not a library's job, because a list may come from a stranger: every length is
// held against what is there, nothing is decrypted, and no sum is computed that the
// list could ask to be computed a billion times.
package keystore

import (
	"bytes"
	"errors"
)

// Errors of Add.
var (
	ErrForm   = errors.New("it is no list of authorities in a form that is known")
	ErrSealed = errors.New("it is sealed with a password")
)

// Add returns a list with a certificate, in DER, under a name of ASCII letters,
// digits and dashes, in the place of what had that name. The list is one of the form
// JKS under its usual password, "changeit", or one of the form PKCS #12 without any.
// Its errors are ErrForm and ErrSealed.
func Add(list []byte, name string, certificate []byte) ([]byte, error) {
	if bytes.HasPrefix(list, jksMagic) {
		return addJKS(list, name, certificate)
	}
	return addPKCS12(list, name, certificate)
}
