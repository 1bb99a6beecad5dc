package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// printable makes a text one line without control characters, which a terminal only displays: anyone may have chosen
// the names of tables, files and variables.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, text)
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// printableJSON escapes in JSON what is not printable, which can be in its strings only.
func printableJSON(raw []byte) string {
	var out strings.Builder
	for _, r := range string(raw) {
		switch {
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

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
		shown := protoreflect.ValueOfString(printable(text))
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
func printableAnswers(
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
