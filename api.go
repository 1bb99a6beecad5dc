// Package cleanupd holds the API's description, so that the program can serve it, and a client of the API.
package cleanupd

import (
	_ "embed" // for OpenAPI

	"google.golang.org/grpc"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
)

// OpenAPI is the REST API as an OpenAPI 3.1 document, generated from proto/.
//
//go:embed gen/openapi.json
var OpenAPI string

// Client is a client of all services.
type Client struct {
	cleanupv1.CleanupServiceClient
	cleanupv1.GuardServiceClient
	cleanupv1.PolicyServiceClient
	cleanupv1.InsightServiceClient
	cleanupv1.ServerServiceClient
	cleanupv1.UserDataServiceClient
	cleanupv1.RestoreServiceClient
}

// NewClient returns a client that uses a connection.
func NewClient(conn grpc.ClientConnInterface) Client {
	return Client{
		cleanupv1.NewCleanupServiceClient(conn), cleanupv1.NewGuardServiceClient(conn),
		cleanupv1.NewPolicyServiceClient(conn), cleanupv1.NewInsightServiceClient(conn),
		cleanupv1.NewServerServiceClient(conn), cleanupv1.NewUserDataServiceClient(conn),
		cleanupv1.NewRestoreServiceClient(conn),
	}
}
