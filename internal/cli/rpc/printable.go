package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleanupd/cleanupd/internal/terminal"
)

// makePrintable makes all strings of a message printable.
func makePrintable(message any) {
	m, ok := message.(proto.Message)
	if !ok {
		return
	}
	_ = protorange.Range(m.ProtoReflect(), func(values protopath.Values) error {
		last, holder := values.Index(-1), values.Index(-2)
		text, ok := last.Value.Interface().(string)
		if !ok {
			return nil
		}
		shown := protoreflect.ValueOfString(terminal.Printable(text))
		switch last.Step.Kind() {
		case protopath.FieldAccessStep:
			holder.Value.Message().Set(last.Step.FieldDescriptor(), shown)
		case protopath.ListIndexStep:
			holder.Value.List().Set(last.Step.ListIndex(), shown)
		}
		return nil
	})
}

// printableAnswers makes the responses of calls printable.
func printableResponses(
	ctx context.Context,
	method string,
	req, reply any,
	conn *grpc.ClientConn,
	call grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	err := call(ctx, method, req, reply, conn, options...)
	makePrintable(reply)
	return err
}

// printableStreams makes the messages of streams printable.
func printableStreams(
	ctx context.Context,
	desc *grpc.StreamDesc,
	conn *grpc.ClientConn,
	method string,
	open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, options...)
	return printableStream{stream}, err
}

type printableStream struct{ grpc.ClientStream }

// RecvMsg implements grpc.ClientStream.
func (s printableStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	makePrintable(m)
	return err
}
