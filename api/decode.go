package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on a JSON body.
const (
	maxBody  = 4 << 20 // bytes
	bodyTime = 30 * time.Second
)

// decode reads a JSON body into v: one object, no unknown field, at most maxBody
// bytes, within bodyTime.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(bodyTime)); err == nil {
		defer rc.SetReadDeadline(time.Time{})
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return bodyError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badBody(errors.New("there is more after the object"), "send one JSON object")
	}
	return nil
}

// bodyError says what is wrong with a body in the words of the API.
func bodyError(err error) error {
	var size *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &size):
		return badBody(fmt.Errorf("it has more than %d bytes", size.Limit), "send large data as a file or as input")
	case errors.As(err, &kind):
		return badBody(fmt.Errorf("%q must not be a %s", kind.Field, kind.Value), "/v1/openapi.json has the type of every field")
	case errors.Is(err, io.EOF):
		return badBody(errEmpty, "send one JSON object")
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		return badBody(errors.New(strings.TrimPrefix(err.Error(), "json: ")), "/v1/openapi.json lists the fields")
	}
	return badBody(err, "send one JSON object")
}

var errEmpty = errors.New("it is empty")

func badBody(err error, hint string) error {
	return &sandbox.Error{Op: "read the request's body", Kind: sandbox.Invalid, Err: err, Hint: hint}
}
