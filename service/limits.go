package service

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/cleanupd/cleanupd/service/access"
)

// MaxAnswer is the most bytes of a response. The largest is that of FindUserData, about a person with many process instances.
const MaxAnswer = 64 << 20

// What a caller may send. No request of the API comes near these sizes. A thousand watchers may come from one address, behind
// a proxy.
const (
	maxRequest  = 1 << 20
	maxHeaders  = 64 << 10
	maxCalls    = 100  // at once, of a caller
	maxWatchers = 2000 // streams at once, of a caller
)

// How long a client may take to send a request's headers, to send the whole request, and to read from a stream. Tests
// shorten them.
var (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	stallTimeout  = 5 * time.Minute
)

// limits count the calls and streams of callers in progress, over gRPC and REST together.
type limits struct{ calls, watchers limiter }

func newLimits() *limits {
	return &limits{limiter{most: maxCalls, what: "calls", underWay: map[string]int{}}, limiter{most: maxWatchers, what: "streams", underWay: map[string]int{}}}
}

// options are the server options that enforce the limits. The gateway's connection has no limit on streams, since it carries
// those of all callers.
func (l *limits) options(gateway bool) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(MaxAnswer), grpc.MaxHeaderListSize(maxHeaders),
		grpc.ChainUnaryInterceptor(l.unary), grpc.ChainStreamInterceptor(l.stream),
	}
	if gateway {
		return options
	}
	return append(options, grpc.InTapHandle(inTime), grpc.MaxConcurrentStreams(maxCalls+maxWatchers), grpc.ConnectionTimeout(headerTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 15 * time.Minute, Time: time.Minute, Timeout: 20 * time.Second}))
}

// arrival is the context key of the timer that ends a call whose request does not arrive.
type arrival struct{}

// inTime ends a call whose request does not arrive in time: requests of unary calls are read before authentication.
func inTime(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, end := context.WithCancel(ctx)
	return context.WithValue(ctx, arrival{}, time.AfterFunc(bodyTimeout, end)), nil
}

// arrived stops that timer.
func arrived(ctx context.Context) {
	if timer, ok := ctx.Value(arrival{}).(*time.Timer); ok {
		timer.Stop()
	}
}

func (l *limits) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	arrived(ctx)
	if rules[info.FullMethod].role == access.Nobody {
		return handler(ctx, req)
	}
	leave, err := l.calls.enter(caller(ctx).String())
	if err != nil {
		return nil, err
	}
	defer leave()
	return handler(ctx, req)
}

func (l *limits) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	who := caller(stream.Context()).String()
	if rules[info.FullMethod].role == access.Nobody { // is not authenticated
		if p, ok := peer.FromContext(stream.Context()); ok {
			who = hostOf(p.Addr.String())
		}
	}
	leave, err := l.watchers.enter(who)
	if err != nil {
		return err
	}
	defer leave()
	return (&patientStream{ServerStream: stream}).serve(srv, handler)
}

// limiter counts what is in progress, by caller.
type limiter struct {
	most     int
	what     string
	mu       sync.Mutex
	underWay map[string]int
}

// enter counts one more until leave is called, or fails with RESOURCE_EXHAUSTED if it is one too many.
func (l *limiter) enter(who string) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay[who] >= l.most {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d %s under way, as many as one caller may: wait until one ends", who, l.most, l.what)
	}
	l.underWay[who]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.underWay[who]--; l.underWay[who] == 0 {
			delete(l.underWay, who)
		}
	}, nil
}

// errStalled ends a stream whose client has not read for too long. The client still gets what is in flight, and then this.
var errStalled = status.Error(codes.Unavailable, "the stream was not read for "+stallTimeout.String()+": go on with a new one")

// patientStream knows since when a message has been waiting to be sent.
type patientStream struct {
	grpc.ServerStream
	since atomic.Int64 // in nanoseconds of the Unix time; 0: none waits
}

func (s *patientStream) SendMsg(m any) error {
	s.since.Store(time.Now().UnixNano())
	defer s.since.Store(0)
	return s.ServerStream.SendMsg(m)
}

// serve runs a handler until it returns, or a message has waited for too long. The waiting send then ends with the stream.
func (s *patientStream) serve(srv any, handler grpc.StreamHandler) error {
	done := make(chan error, 1)
	go func() { done <- handler(srv, s) }()
	look := time.NewTicker(stallTimeout / 5)
	defer look.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-look.C:
			if since := s.since.Load(); since != 0 && time.Since(time.Unix(0, since)) > stallTimeout {
				return errStalled
			}
		}
	}
}

// patient limits how long each write may wait for the client. (http.Server.WriteTimeout would limit a whole stream.)
func patient(next http.Handler) http.Handler {
	most := stallTimeout
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &patientWriter{w, http.NewResponseController(w), most}
		next.ServeHTTP(out, r)
		out.wait() // for the end of the response, too
	})
}

type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	most    time.Duration
}

func (w *patientWriter) wait() { _ = w.control.SetWriteDeadline(time.Now().Add(w.most)) }

// taken removes the deadline, which over HTTP/2 would also end a stream that has nothing to write.
func (w *patientWriter) taken() { _ = w.control.SetWriteDeadline(time.Time{}) }

// Unwrap is for http.ResponseController.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *patientWriter) Write(p []byte) (int, error) {
	w.wait()
	defer w.taken()
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *patientWriter) FlushError() error {
	w.wait()
	defer w.taken()
	return w.control.Flush()
}
