// Package account keeps accounts and their keys, lets callers in, and removes
// temporary accounts that nobody claims.
//
// A key is 40 hex digits of full entropy behind a prefix. The store holds its
// SHA-256 alone, as a part of the record's key: a lookup compares nothing that a
// stranger could learn from, and whoever reads the store can open nothing with it.
package account
