// Package image builds and keeps the root images that sandboxes start from.
//
// A root comes from a distribution's packages or from an OCI image; it gets the
// parts that every sandbox relies on, and becomes one read-only EROFS file named
// by its content. Beneath the store's directory lie
//
//	<name>.json           a template: what it was built from, and its image
//	images/<hex>.erofs    a root image
//	images/<hex>.json     what a sandbox needs to know of it
//	work/<random>/        a build under way, with <random>.lock held by it
//
// A template's file is written last, so that one that is listed is whole.
//
// Images are hostile: their paths are resolved beneath the new root by the
// kernel (openat2), their sizes are bounded, and what they say is checked.
// Building needs root, because files keep their owners, and Linux 5.8.
package image
