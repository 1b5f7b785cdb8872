package e2b

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/berth-dev/berth/sandbox"
)

const (
	awsLoginTime   = 30 * time.Second
	maxAWSAnswer   = 64 << 10 // bytes
	awsLoginTarget = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
)

// awsImage is an image in a private registry of AWS: the number of an account, the
// region, and the rest of the registry's domain.
var awsImage = regexp.MustCompile(`^[0-9]{12}\.dkr\.(ecr(?:-fips)?)\.([a-z]{2}(?:-[a-z]+)+-[0-9])\.([a-z0-9.-]+)/`)

// awsLogin exchanges the credentials of an account of AWS for a login to its
// registry, which lasts for hours.
type awsLogin struct {
	client *http.Client
	now    func() time.Time
}

func newAWSLogin() *awsLogin {
	return &awsLogin{now: time.Now, client: &http.Client{Timeout: awsLoginTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// plain turns a registry of AWS into one with a name and a password. The server that
// is asked is the image's own region's: whatever its name is, it must prove it.
func (a *awsLogin) plain(ctx context.Context, r *registry, image string) (*registry, error) {
	at := awsImage.FindStringSubmatch(image)
	switch {
	case at == nil:
		return nil, invalid(fmt.Sprintf("fromImageRegistry of type aws: %q is no image of a registry of AWS, as ACCOUNT.dkr.ecr.REGION.…/NAME is", printable(image)))
	case r.AWSRegion != at[2]:
		return nil, invalid(fmt.Sprintf("fromImageRegistry: the region is %q, the image's is %s", printable(r.AWSRegion), at[2]))
	case r.AWSKeyID == "" || r.AWSKey == "":
		return nil, invalid("fromImageRegistry of type aws needs awsAccessKeyId and awsSecretAccessKey")
	}
	token, err := a.ask(ctx, fmt.Sprintf("https://api.%s.%s.%s/", at[1], at[2], at[3]), r)
	if err != nil {
		return nil, err
	}
	both, err := base64.StdEncoding.DecodeString(token)
	name, password, ok := strings.Cut(string(both), ":")
	if err != nil || !ok {
		return nil, badGateway("the registry's login service gave no login", nil)
	}
	return &registry{Type: "registry", Username: name, Password: sandbox.Password(password)}, nil
}

// ask has the service give a token. No credential is in its errors.
func (a *awsLogin) ask(ctx context.Context, url string, r *registry) (string, error) {
	body := []byte("{}")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", invalid("fromImageRegistry: the image's registry has no address")
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", awsLoginTarget)
	sum := sha256.Sum256(body)
	creds := aws.Credentials{AccessKeyID: r.AWSKeyID, SecretAccessKey: string([]byte(r.AWSKey))}
	if err := v4.NewSigner().SignHTTP(ctx, creds, req, hex.EncodeToString(sum[:]), "ecr", r.AWSRegion, a.now()); err != nil {
		return "", sandbox.Errorf("sign request", sandbox.Internal, "%w", err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return "", badGateway("the registry's login service did not answer", err)
	}
	defer resp.Body.Close()
	var said struct {
		Data []struct {
			Token string `json:"authorizationToken"`
		} `json:"authorizationData"`
		Message string `json:"message"`
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAWSAnswer))
	if err == nil {
		err = json.Unmarshal(b, &said)
	}
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return "", invalid("fromImageRegistry: the registry's login service refused: " + printable(said.Message))
	case err != nil || resp.StatusCode != http.StatusOK || len(said.Data) == 0:
		return "", badGateway(fmt.Sprintf("the registry's login service answered %d", resp.StatusCode), err)
	}
	return said.Data[0].Token, nil
}

func badGateway(text string, err error) error {
	return &fault{status: http.StatusBadGateway, text: "fromImageRegistry: " + text, err: err}
}
