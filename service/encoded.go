package service

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/runs"
)

// encoded is a message in wire format. An event is encoded once for all its watchers.
type encoded []byte

// encode encodes the message of an event, which is the same for RunCleanupResponse and WatchRunResponse.
func encode(e runs.Event) (encoded, error) {
	message, err := e.Once(func() (any, error) {
		raw, err := marshal(&cleanupv1.WatchRunResponse{Event: eventMessage(e)}, protobuf.Marshal)
		return encoded(raw), err
	})
	if err != nil {
		return nil, err
	}
	return message.(encoded), nil
}

// codec is that of protobuf, but passes on encoded messages as they are.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(encoded); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	message, ok := v.(protobuf.Message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	return marshal(message, func(m protobuf.Message) (mem.BufferSlice, error) { return c.CodecV2.Marshal(m) })
}

// passEncoded lets streams send encoded messages.
func passEncoded() grpc.ServerOption {
	return grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})
}
