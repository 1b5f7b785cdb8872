package s3

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/berth-dev/berth/sandbox"
)

// ParseURL reads s3://bucket/prefix?endpoint=URL&region=NAME&style=path|host.
// Credentials have no place in it.
func ParseURL(s string) (Config, error) {
	c, err := parseURL(s)
	if err != nil {
		return Config{}, &sandbox.Error{Op: "parse bucket", Kind: sandbox.Invalid, Err: err,
			Hint: "give it as s3://bucket/prefix?endpoint=https://host&region=name, and keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
	}
	return c, nil
}

func parseURL(s string) (Config, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Config{}, errors.New("it is not a URL") // whose error might repeat a password
	}
	if u.User != nil {
		return Config{}, errors.New("it holds a user or a password")
	}
	if u.Scheme != "s3" || u.Host == "" || u.Fragment != "" {
		return Config{}, errors.New("it is not s3://bucket/prefix")
	}
	c := Config{Bucket: u.Host, Prefix: u.Path}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Config{}, errors.New("what follows ? cannot be read")
	}
	for key, values := range q {
		v := values[len(values)-1]
		switch {
		case key == "endpoint" && isEndpoint(v):
			c.Endpoint = v
		case key == "region" && v != "":
			c.Region = v
		case key == "style" && (v == "path" || v == "host"):
			c.VirtualHost = v == "host"
		default:
			return Config{}, fmt.Errorf("%.40q is not taken there, or not so", key)
		}
	}
	return c, nil
}

// isEndpoint reports whether s is an http or https URL of a host alone.
func isEndpoint(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && (u.Path == "" || u.Path == "/")
}
