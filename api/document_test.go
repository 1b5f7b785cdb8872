package api_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
)

// TestDocumentHasEveryRoute holds the routes and the document to each other.
func TestDocumentHasEveryRoute(t *testing.T) {
	s := served.Start(t)
	doc := document(t, s)
	var described, served []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	for _, r := range s.API.Routes() {
		served = append(served, r[0]+" "+r[1])
	}
	sort.Strings(described)
	sort.Strings(served)
	if !slices.Equal(described, served) {
		t.Errorf("described:\n%s\nserved:\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}
	codes := doc.Components.Schemas["Error"].Value.Properties["error"].Value.Properties["code"].Value.Enum
	for _, k := range sandbox.Kinds() {
		if !slices.Contains(codes, any(string(k))) {
			t.Errorf("the document does not know the code %s", k)
		}
	}
}

// document fetches the document without a key and closes its objects: then an
// answer with a field that is not described is an error.
func document(t *testing.T, s *served.Server) *openapi3.T {
	t.Helper()
	resp, err := http.Get(s.URL + "/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !doc.IsOpenAPI31OrLater() {
		t.Error("the document is older than 3.1")
	}
	for _, ref := range doc.Components.Schemas {
		closeObject(ref)
	}
	return doc
}

func closeObject(ref *openapi3.SchemaRef) {
	s := ref.Value
	if ref.Ref != "" || s == nil || len(s.Properties) == 0 {
		return
	}
	no := false
	s.AdditionalProperties = openapi3.AdditionalProperties{Has: &no}
	for _, p := range s.Properties {
		closeObject(p)
	}
}

// checked is a transport that holds every answer to the document.
type checked struct {
	t      *testing.T
	router routers.Router
}

func checkedClient(t *testing.T, s *served.Server) *http.Client {
	t.Helper()
	router, err := gorillamux.NewRouter(document(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: &checked{t, router}}
}

func (c *checked) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return resp, err
	}
	route, params, err := c.router.FindRoute(r)
	if err != nil {
		return resp, nil // not a route: TestErrors looks at the answer
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return resp, err
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	if err := openapi3filter.ValidateResponse(r.Context(), in); err != nil {
		c.t.Errorf("%s %s answers %s\nwhich is not as described: %v", r.Method, r.URL, body, err)
	}
	return resp, nil
}

// TestDocumentIsStrict shows that the check above can fail.
func TestDocumentIsStrict(t *testing.T) {
	s := served.Start(t)
	schema := document(t, s).Components.Schemas["Exit"].Value
	if err := schema.VisitJSON(map[string]any{"code": 0}, openapi3.EnableJSONSchema2020()); err != nil {
		t.Error(err)
	}
	for _, bad := range []map[string]any{{}, {"code": "0"}, {"code": 0, "mood": "fine"}, {"code": 256}} {
		if schema.VisitJSON(bad, openapi3.EnableJSONSchema2020()) == nil {
			t.Errorf("%v passes", bad)
		}
	}
}
