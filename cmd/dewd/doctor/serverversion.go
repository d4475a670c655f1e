package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

// serverVersion requests the version of the containerd at a socket. It does not use
// containerd's own types, because only the engine can import them.
func serverVersion(ctx context.Context, socket string) (string, error) {
	if _, err := os.Stat(socket); err != nil {
		return "", err
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", fmt.Errorf("cannot connect: %w", err)
	}
	defer conn.Close()
	answer := &emptypb.Empty{}
	if err := conn.Invoke(ctx, "/containerd.services.version.v1.Version/Version", &emptypb.Empty{}, answer); err != nil {
		return "", fmt.Errorf("cannot get the version: %w", err)
	}
	return firstString(answer.ProtoReflect().GetUnknown())
}

// firstString finds field 1 of an encoded message.
func firstString(b []byte) (string, error) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return "", protowire.ParseError(n)
		}
		b = b[n:]
		if field == 1 && kind == protowire.BytesType {
			s, n := protowire.ConsumeBytes(b)
			return string(s), protowire.ParseError(n)
		}
		if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
			return "", protowire.ParseError(n)
		}
		b = b[n:]
	}
	return "", errors.New("the response contains no version")
}
