package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/blob"
	blobdisk "github.com/berth-dev/berth/blob/disk"
	"github.com/berth-dev/berth/blob/s3"
	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/secret"
	"github.com/berth-dev/berth/snapshot"
)

// Where snapshots and backups live beneath the data directory.
const (
	blobsDir     = "blobs"
	snapshotsDir = "snapshots"
	serverIDFile = "server.id" // whose blobs they are, for stores that several servers reach
)

// defaultCache is the default of --snapshot-cache.
const defaultCache = "8GiB"

// archiveFlags say where snapshots and backups are kept.
type archiveFlags struct {
	blobs, cache, key string
}

func (f *archiveFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.blobs, "blobs", "", "where snapshots and backups are kept: a folder, or s3://bucket/prefix?endpoint=URL&region=NAME (default DATA/"+blobsDir+")")
	flags.StringVar(&f.key, "snapshot-key", "", "file of the key that seals snapshots and backups where they are kept, 64 hex digits (default: they are not sealed)")
	flags.StringVar(&f.cache, "snapshot-cache", defaultCache, "disk that unpacked snapshots may use while nobody uses them")
}

// configure takes from the configuration file what no flag says.
func (f *archiveFlags) configure(cmd *cobra.Command, c config.Snapshots) {
	if c.Blobs != "" && !cmd.Flags().Changed("blobs") {
		f.blobs = c.Blobs
	}
	if c.Key != "" && !cmd.Flags().Changed("snapshot-key") {
		f.key = c.Key
	}
	if c.Cache != 0 && !cmd.Flags().Changed("snapshot-cache") {
		f.cache = strconv.FormatInt(int64(c.Cache), 10)
	}
}

// open opens the archive that the flags describe.
func (f *archiveFlags) open(ctx context.Context, data string) (*snapshot.Shelf, error) {
	budget, err := parseSize(f.cache)
	if err != nil {
		return nil, err
	}
	blobs, err := f.openBlobs(ctx, data)
	if err != nil {
		return nil, err
	}
	key, err := f.sealingKey()
	if err != nil {
		return nil, err
	}
	defer clear(key)
	store, err := snapshot.New(snapshot.Config{Blobs: blobs, Key: key})
	if err != nil {
		return nil, err
	}
	return snapshot.OpenShelf(store, filepath.Join(data, snapshotsDir), bootID(), budget)
}

// sealingKey reads the key of the flags; nil if they name none.
func (f *archiveFlags) sealingKey() ([]byte, error) {
	if f.key == "" {
		return nil, nil
	}
	key, err := secret.ReadKey(f.key)
	if err != nil {
		return nil, &sandbox.Error{Op: "seal snapshots", Kind: sandbox.KindOf(err), Err: err}
	}
	return key, nil
}

func (f *archiveFlags) openBlobs(ctx context.Context, data string) (blob.Store, error) {
	if f.blobs == "" {
		return blobdisk.Open(filepath.Join(data, blobsDir))
	}
	// Blobs that no record here names are removed: they must be nobody else's.
	id, err := serverID(data)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(f.blobs, "s3:") {
		if err := claimFolder(f.blobs, id); err != nil {
			return nil, err
		}
		return blobdisk.Open(f.blobs)
	}
	c, err := s3.ParseURL(f.blobs)
	if err != nil {
		return nil, err
	}
	s, err := s3.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return s, s.Claim(ctx, id)
}

// claimFolder takes a folder of blobs for a server, who may claim it again.
func claimFolder(dir, id string) error {
	path := filepath.Join(dir, "owner")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return dataError(dir, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.WriteString(id + "\n")
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return dataError(path, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return dataError(path, err)
	}
	if owner := strings.TrimSpace(string(b)); owner != id {
		return &sandbox.Error{Op: "claim blobs", Kind: sandbox.Conflict, Err: fmt.Errorf("%s belongs to another server, %.80q", dir, owner),
			Hint: "give each server a folder of its own; if the other is gone for good, remove " + path}
	}
	return nil
}

// serverID names this data directory for ever.
func serverID(data string) (string, error) {
	path := filepath.Join(data, serverIDFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id := strings.ToLower(rand.Text())
		return id, writeSecret(path, id+"\n")
	}
	if err != nil {
		return "", dataError(path, err)
	}
	return strings.TrimSpace(string(b)), nil
}
