package rpc

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cleanupd/cleanupd/internal/terminal"
)

func makePrintable(message any) {
	m, ok := message.(proto.Message)
	if !ok {
		return
	}
	_ = protorange.Range(m.ProtoReflect(), func(values protopath.Values) error {
		last, parent := values.Index(-1), values.Index(-2)
		text, ok := last.Value.Interface().(string)
		if !ok {
			return nil
		}
		replacement := protoreflect.ValueOfString(terminal.Printable(text))
		switch last.Step.Kind() {
		case protopath.FieldAccessStep:
			parent.Value.Message().Set(last.Step.FieldDescriptor(), replacement)
		case protopath.ListIndexStep:
			parent.Value.List().Set(last.Step.ListIndex(), replacement)
		}
		return nil
	})
}

type rawOption struct{ grpc.EmptyCallOption }

// Raw leaves the strings of a unary call's response unchanged. The caller must make them printable before printing
// them.
func Raw() grpc.CallOption { return rawOption{} }

func isRaw(o grpc.CallOption) bool {
	_, ok := o.(rawOption)
	return ok
}

func printableResponses(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker,
	options ...grpc.CallOption,
) error {
	err := call(ctx, method, req, reply, conn, options...)
	if !slices.ContainsFunc(options, isRaw) {
		makePrintable(reply)
	}
	return err
}

func printableStreams(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
	options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, options...)
	return printableStream{stream}, err
}

type printableStream struct{ grpc.ClientStream }

func (s printableStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	makePrintable(m)
	return err
}
