// Package cleanupd holds the API's description, so that the program can serve it.
package cleanupd

import _ "embed" // for OpenAPI

// OpenAPI is the REST API as an OpenAPI 3.1 document, generated from proto/.
//
//go:embed gen/openapi.json
var OpenAPI string
