package service

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/userdata"
)

// UserData implements cleanup.v1.UserDataService.
type UserData struct {
	cleanupv1.UnimplementedUserDataServiceServer
	forms *userdata.Manager
	// unavailable says why the Forms database must not be used; nil if none was configured.
	unavailable error
	// stopping is done when streams must end.
	stopping context.Context
}

// NewUserData returns the service for a Forms database; with nil it fails every call. When stopping ends, its streams end
// with UNAVAILABLE.
func NewUserData(stopping context.Context, forms *userdata.Manager) *UserData {
	return &UserData{forms: forms, stopping: stopping}
}

// NoUserData returns a service that fails every call with an error: the Forms database must not be used.
func NoUserData(why error) *UserData { return &UserData{unavailable: why} }

// ready fails if there is a Forms database, and it does not answer.
func (u *UserData) ready(ctx context.Context) error {
	if u.forms == nil {
		return nil
	}
	return u.forms.Ready(ctx)
}

// errNoForms says that the server was started without a Forms database.
var errNoForms = status.Error(
	codes.FailedPrecondition, "this server knows no AEM Forms database: start it with --forms-database-url",
)

// noForms returns why there is no Forms database.
func (s *UserData) noForms() error {
	if s.unavailable != nil {
		return s.unavailable
	}
	return errNoForms
}

// checkReachable fails if the Forms database must not be used: there is none, or the service's own database belongs to
// another instance now.
func (s *UserData) checkReachable(ctx context.Context) error {
	if s.forms == nil {
		return s.noForms()
	}
	return s.forms.Own(ctx)
}
