package s3

import (
	"errors"
	"net/http"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/berth-dev/berth/sandbox"
)

// abortTime bounds the calling off of an upload.
const abortTime = 30 * time.Second

// faults gives the protocol's error codes a kind, and a hint where one helps.
var faults = map[string]struct {
	kind sandbox.Kind
	hint string
}{
	"AccessDenied":          {sandbox.Forbidden, hintRights},
	"Forbidden":             {sandbox.Forbidden, hintRights},
	"AllAccessDisabled":     {sandbox.Forbidden, hintRights},
	"InvalidAccessKeyId":    {sandbox.Unauthorized, hintKeys},
	"XAdminUserNotFound":    {sandbox.Unauthorized, hintKeys},
	"SignatureDoesNotMatch": {sandbox.Unauthorized, hintKeys},
	"ExpiredToken":          {sandbox.Unauthorized, hintKeys},
	"InvalidToken":          {sandbox.Unauthorized, hintKeys},
	"RequestTimeTooSkewed":  {sandbox.Unauthorized, "set this machine's clock"},
	"NoSuchBucket":          {sandbox.Unavailable, "make the bucket, or name another"},
	"PermanentRedirect":     {sandbox.Unavailable, "give the bucket's own region and endpoint"},
	"QuotaExceeded":         {sandbox.Exhausted, hintFull},
	"XMinioStorageFull":     {sandbox.Exhausted, hintFull},
	"InsufficientStorage":   {sandbox.Exhausted, hintFull},
	"SlowDown":              {sandbox.Unavailable, hintAgain},
	"ServiceUnavailable":    {sandbox.Unavailable, hintAgain},
	"InternalError":         {sandbox.Unavailable, hintAgain},
}

const (
	hintRights = "the bucket's owner must let these credentials read, write, list and remove objects beneath the prefix"
	hintKeys   = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to keys that the bucket's service knows"
	hintFull   = "free space in the bucket, or raise its quota"
	hintAgain  = "the bucket's service is overloaded or out of reach: try again"
)

// wrap puts op before err and gives it a kind.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &sandbox.Error{Op: op, Err: err}
	var known *sandbox.Error
	if errors.As(err, &known) {
		return e
	}
	e.Kind, e.Hint = classify(err)
	return e
}

func classify(err error) (sandbox.Kind, string) {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return sandbox.Exhausted, "free space on the disk where long uploads wait"
	}
	var canceled *aws.RequestCanceledError
	if k := sandbox.KindOf(err); k != sandbox.Internal || errors.As(err, &canceled) {
		return k, ""
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		if f, ok := faults[api.ErrorCode()]; ok {
			return f.kind, f.hint
		}
	}
	switch status(err) {
	case http.StatusUnauthorized:
		return sandbox.Unauthorized, hintKeys
	case http.StatusForbidden:
		return sandbox.Forbidden, hintRights
	case http.StatusNotFound:
		return sandbox.Unavailable, "make the bucket, or name another"
	case http.StatusInsufficientStorage, http.StatusRequestEntityTooLarge:
		return sandbox.Exhausted, hintFull
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return sandbox.Unavailable, hintAgain
	}
	var op *smithy.OperationError
	if errors.As(err, &op) && status(err) == 0 {
		return sandbox.Unavailable, "check the endpoint, and that this machine reaches it"
	}
	return sandbox.Internal, ""
}

// status is the HTTP status that an error came with, or 0.
func status(err error) int {
	var r *awshttp.ResponseError
	if errors.As(err, &r) {
		return r.HTTPStatusCode()
	}
	return 0
}

func isMissing(err error) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	code := api.ErrorCode()
	return code == "NoSuchKey" || code == "NotFound"
}

func isRange(err error) bool {
	return status(err) == http.StatusRequestedRangeNotSatisfiable
}
