package route

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/dewrun/dew/testkit"
)

// grpcWorld returns a real gRPC server with a route, and a client that uses the route.
func grpcWorld(t *testing.T, opts ...grpc.ServerOption) (*health.Server, *grpc.ClientConn) {
	t.Helper()
	w := newWorld(t, overHTTP2(routeTo("grpc", "", "a")))
	l := testkit.Listen(t)
	s, checks := grpc.NewServer(opts...), health.NewServer()
	healthpb.RegisterHealthServer(s, checks)
	reflection.Register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	w.mu.Lock()
	w.hosts[idOf("a", 0)] = l.Addr().String()
	w.mu.Unlock()
	w.router.Changed(ready("a", 0))
	c, err := grpc.NewClient("passthrough:///"+w.front.Listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("grpc.dew.localhost"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return checks, c
}

// A unary call succeeds. A failed call has its status in the header alone.
func TestGRPCUnary(t *testing.T) {
	checks, c := grpcWorld(t)
	checks.SetServingStatus("shop", healthpb.HealthCheckResponse_SERVING)
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	for range 3 {
		res, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{Service: "shop"})
		if err != nil || res.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Fatalf("%v, %v", res, err)
		}
		_, err = healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{Service: "nonesuch"})
		if got := status.Convert(err); got.Code() != codes.NotFound || got.Message() != "unknown service" {
			t.Fatalf("%v, want the server's own words", err)
		}
		var unknown healthpb.HealthCheckResponse
		if err := c.Invoke(ctx, "/none.Such/Method", &healthpb.HealthCheckRequest{}, &unknown); status.Code(err) != codes.Unimplemented {
			t.Fatalf("%v, want Unimplemented", err)
		}
	}
}

// In a server stream, each message arrives when it is sent. When the client
// disconnects, the stream ends at the server.
func TestGRPCServerStream(t *testing.T) {
	ended := make(chan struct{})
	checks, c := grpcWorld(t, grpc.StreamInterceptor(func(s any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
		defer close(ended)
		return serve(s, stream)
	}))
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	stream, err := healthpb.NewHealthClient(c).Watch(ctx, &healthpb.HealthCheckRequest{Service: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	want := []healthpb.HealthCheckResponse_ServingStatus{
		healthpb.HealthCheckResponse_SERVICE_UNKNOWN, healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING,
	}
	for i, s := range want {
		if i > 0 {
			checks.SetServingStatus("shop", s)
		}
		got, err := stream.Recv()
		if err != nil || got.GetStatus() != s {
			t.Fatalf("%v, %v, want %v", got, err, s)
		}
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("%v, want Canceled", err)
	}
	testkit.Closed(t, "the stream at the server ends", ended)
}

// Both sides send in turn on one stream, and the status arrives at its end.
func TestGRPCBothWays(t *testing.T) {
	_, c := grpcWorld(t)
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	stream, err := reflectpb.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := stream.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}}); err != nil {
			t.Fatal(err)
		}
		res, err := stream.Recv()
		if err != nil || len(res.GetListServicesResponse().GetService()) < 2 {
			t.Fatalf("%v, %v", res, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end", err)
	}
}

// A route without an instance is reported as a gRPC status.
func TestGRPCWithoutInstance(t *testing.T) {
	w := newWorld(t, overHTTP2(routeTo("grpc", "", "a")))
	c, err := grpc.NewClient("passthrough:///"+w.front.Listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("grpc.dew.localhost"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if _, err := healthpb.NewHealthClient(c).Check(ctx, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want Unavailable", err)
	}
}
