package service

import (
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/service/transport"
)

// encode returns the message of an event, encoded once for all its watchers. RunCleanupResponse and WatchRunResponse
// are the same on the wire.
func encode(e store.Event) (transport.Encoded, error) {
	message, err := e.Once(func() (any, error) {
		return transport.Encode(&cleanupv1.WatchRunResponse{Event: eventMessage(e)})
	})
	if err != nil {
		return nil, err
	}
	return message.(transport.Encoded), nil
}
