package transport

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// Encoded is a message in wire format, which streams may send in its place.
type Encoded []byte

// Encode returns a message in wire format.
func Encode(message protobuf.Message) (Encoded, error) {
	raw, err := marshal(message, protobuf.Marshal)
	return Encoded(raw), err
}

// codec is protobuf's, except that it passes on encoded messages as they are.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(Encoded); ok {
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
