package s3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/berth-dev/berth/sandbox"
)

// maxClaim bounds what is read of a claim.
const maxClaim = 4 << 10

// claim is the object that says whose the prefix is.
type claim struct {
	Owner string `json:"owner"`
}

// Claim takes the prefix for an owner, who may claim it again. Whoever removes
// what he does not know must have done so: another's prefix is Conflict.
func (s *Store) Claim(ctx context.Context, owner string) error {
	return wrap("claim bucket "+s.bucket, s.claim(ctx, owner))
}

func (s *Store) claim(ctx context.Context, owner string) error {
	key := aws.String(s.prefix + "owner.json")
	has, err := s.claimant(ctx, key)
	if sandbox.KindOf(err) == sandbox.NotFound {
		b, merr := json.Marshal(claim{owner})
		if merr != nil {
			return merr
		}
		_, err = s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: key, Body: strings.NewReader(string(b)), IfNoneMatch: aws.String("*")})
		if err != nil && !lostRace(err) {
			return err
		}
		has, err = s.claimant(ctx, key)
	}
	if err != nil {
		return err
	}
	if has != owner {
		return &sandbox.Error{Kind: sandbox.Conflict, Err: fmt.Errorf("%s%s belongs to another server, %.80q", s.bucket+"/", s.prefix, has),
			Hint: "give each server a prefix of its own; if the other is gone for good, remove owner.json there"}
	}
	return nil
}

// claimant reads who has claimed the prefix, or NotFound.
func (s *Store) claimant(ctx context.Context, key *string) (string, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: key})
	if isMissing(err) {
		return "", sandbox.Errorf("", sandbox.NotFound, "nobody has claimed it")
	}
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(out.Body, maxClaim))
	if err := errors.Join(err, out.Body.Close()); err != nil {
		return "", err
	}
	var c claim
	if err := json.Unmarshal(b, &c); err != nil || c.Owner == "" {
		return "", sandbox.Errorf("", sandbox.Conflict, "%s is not a claim that this program has written", *key)
	}
	return c.Owner, nil
}

// lostRace reports whether another has written the object meanwhile.
func lostRace(err error) bool {
	var api smithy.APIError
	code := ""
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	return status(err) == http.StatusPreconditionFailed || code == "PreconditionFailed" || code == "ConditionalRequestConflict"
}
