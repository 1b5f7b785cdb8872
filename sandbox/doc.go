// Package sandbox is Berth's vocabulary: the words every floor shares.
//
// It imports the standard library only, holds no behaviour beyond checking its
// own values, and names no vendor and no mechanism.
package sandbox
