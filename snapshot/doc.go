// Package snapshot keeps folders of large, sparse files, and streams, as
// compressed chunks in a blob store, each chunk once however many need it.
//
// What is kept is told by a manifest, a blob itself that is stored last: whoever
// has its digest has the whole, and before it is stored there is nothing. Files
// are cut every ChunkSize bytes, so that a page that did not change lies in a
// chunk that did not; streams are cut where their content says so, so that what
// is inserted moves no other cut. Holes and chunks of zeros are not stored.
//
// A chunk is checked against the SHA-256 of its plain bytes whenever it is read,
// whatever the blob store has checked. Chunks that no manifest needs are removed
// by Sweep, which spares those that a Save under way has stored or relies on.
package snapshot
