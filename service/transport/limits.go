package transport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/access"
)

// MaxResponse is the largest response in bytes. The largest ones are those of FindUserData about a person with many
// process instances.
const MaxResponse = 64 << 20

// maxRequest and maxHeaders limit in bytes what a caller may send. No request of the API comes near them.
const (
	maxRequest = 1 << 20
	maxHeaders = 64 << 10
)

// maxMessages limits how many messages may be in a request, since 2 bytes are an empty one, which takes 100 bytes of
// memory, and much more if each is a mistake. No request of the API has nearly as many.
const maxMessages = 1_000

// decode fails before it takes memory for a request with too many messages.
func decode(raw Encoded, request any) error {
	m, ok := request.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", request)
	}
	n := 0
	err := countMessages(raw, m.ProtoReflect().Descriptor(), &n)
	switch {
	case n > maxMessages:
		return status.Errorf(codes.InvalidArgument, "the request has more than %d messages in it", maxMessages)
	case err == nil:
		err = proto.Unmarshal(raw, m)
	}
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "the request is not a %s: %v", m.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}

// countMessages adds to n the messages in one on the wire, and stops when they are too many.
func countMessages(wire []byte, of protoreflect.MessageDescriptor, n *int) error {
	for len(wire) > 0 && *n <= maxMessages {
		number, typ, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		length := protowire.ConsumeFieldValue(number, typ, wire[tag:])
		if length < 0 {
			return protowire.ParseError(length)
		}
		if f := of.Fields().ByNumber(number); f != nil && f.Message() != nil && typ == protowire.BytesType {
			*n++
			inner, _ := protowire.ConsumeBytes(wire[tag:])
			if err := countMessages(inner, f.Message(), n); err != nil {
				return err
			}
		}
		wire = wire[tag+length:]
	}
	return nil
}

// These limit how many bytes may arrive at once, and per second afterwards: on a connection before its first
// authenticated call, for which they allow the largest headers and health checks, and on all connections of a caller
// together. They bound the memory that incomplete requests take, because grpc allocates a message as soon as its length
// has arrived.
const (
	strangerBurst                     = maxHeaders + 8<<10
	strangerBytesPerSecond rate.Limit = 2 << 10
	byteBurst                         = 4 << 20
	bytesPerSecond         rate.Limit = 256 << 10
)

// callBurst is how many calls and streams a caller may begin at once, callsPerSecond how many afterwards. A
// thousand watchers may reconnect at the same time.
const (
	callBurst                 = 2500
	callsPerSecond rate.Limit = 50
)

// signInBurst is how many sign-ins of a network are passed to the issuer at once, signInsPerSecond how many
// afterwards.
const (
	signInBurst                 = 30
	signInsPerSecond rate.Limit = 1
)

// dryRunBurst is how many dry runs a viewer may start at once, dryRunEvery the time between further ones. Each is
// stored for days, with its results.
const (
	dryRunBurst = 10
	dryRunEvery = 10 * time.Second
)

// resource is something of which a caller may use only a limited number at a time.
type resource int

const (
	callSlot resource = iota
	streamSlot
	connectionSlot
	checkSlot  // calls that need no credentials, counted by address
	signInSlot // sign-ins, counted by network
)

// These limits apply to one caller, over gRPC and REST together. A thousand watchers may come from one address
// behind a proxy.
const (
	MaxCalls       = 100
	MaxStreams     = 1400
	MaxConnections = 1000
	MaxChecks      = 50 // calls that need no credentials
)

var maxPerCaller = [...]struct {
	n    int
	what string
}{
	callSlot:       {MaxCalls, "calls"},
	streamSlot:     {MaxStreams, "streams"},
	connectionSlot: {MaxConnections, "connections"},
	checkSlot:      {MaxChecks, "health checks"},
	signInSlot:     {signInBurst, "sign-ins"},
}

// maxAllStreams limits the streams of all callers together, since a stream whose client does not read takes up to
// 128 KiB. Operators and administrators may use reservedStreams more.
const (
	maxAllStreams   = 1500
	reservedStreams = 100
)

// maxConnStreams is how many calls and streams a connection may have. All those over REST share the gateway's
// connection, on which further ones wait.
const maxConnStreams = 2 * (maxAllStreams + reservedStreams)

// maxActiveCalls is how many unary calls of a caller may use the database at once. After a call, its slot stays taken
// for restFactor times as long as the call took, but at most maxRest. A caller that never pauses therefore uses the
// database only a quarter of the time, and leaves the rest to runs (TestFloodOfReaders).
const (
	maxActiveCalls = 2
	restFactor     = 7
	maxRest        = 2 * time.Second
)

type usage struct {
	inProgress [len(maxPerCaller)]int
	bytes      *rate.Limiter
	calls      *rate.Limiter
	signIns    *rate.Limiter
	dryRuns    *rate.Limiter
	slots      chan struct{}
}

func (u *usage) idle() bool {
	return u.inProgress == [len(maxPerCaller)]int{} && u.calls.Tokens() >= float64(callBurst) &&
		u.signIns.Tokens() >= float64(signInBurst) && u.dryRuns.Tokens() >= dryRunBurst
}

type limits struct {
	turnTimeout time.Duration // how long a call waits for a slot

	mu      sync.Mutex
	callers map[string]*usage
	streams int       // of all callers
	swept   time.Time // when idle callers were last removed
}

// acquire takes one of the caller's resources. It fails with RESOURCE_EXHAUSTED if the caller has as many as it may
// have.
func (l *limits) acquire(who string, role access.Role, r resource) (u *usage, release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.swept) > time.Second {
		maps.DeleteFunc(l.callers, func(_ string, u *usage) bool { return u.idle() })
		l.swept = time.Now()
	}
	u = l.callers[who]
	if u == nil {
		u = &usage{
			bytes:   rate.NewLimiter(bytesPerSecond, byteBurst),
			calls:   rate.NewLimiter(callsPerSecond, callBurst),
			signIns: rate.NewLimiter(signInsPerSecond, signInBurst),
			dryRuns: rate.NewLimiter(rate.Every(dryRunEvery), dryRunBurst),
			slots:   make(chan struct{}, maxActiveCalls),
		}
		l.callers[who] = u
	}
	if u.inProgress[r] >= maxPerCaller[r].n {
		return nil, func() {}, status.Errorf(codes.ResourceExhausted,
			"%s has %d %s in progress, the limit of a caller: wait until one ends", who, maxPerCaller[r].n,
			maxPerCaller[r].what)
	}
	if (r == callSlot || r == streamSlot) && !u.calls.Allow() {
		return nil, func() {}, status.Errorf(codes.ResourceExhausted, "%s makes more than %v calls a second", who,
			callsPerSecond)
	}
	if r == streamSlot {
		inAll := maxAllStreams
		if role > access.Viewer {
			inAll += reservedStreams
		}
		if l.streams >= inAll {
			return nil, func() {}, status.Errorf(codes.ResourceExhausted,
				"%d streams are in progress, the limit of all callers: wait until one ends", l.streams)
		}
		l.streams++
	}
	if r == signInSlot && !u.signIns.Allow() {
		return nil, func() {}, status.Errorf(codes.ResourceExhausted,
			"%s signs in more than once a second: wait a moment", who)
	}
	u.inProgress[r]++
	return u, sync.OnceFunc(func() { l.release(who, r) }), nil
}

func (l *limits) release(who string, r resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callers[who].inProgress[r]--
	if r == streamSlot {
		l.streams--
	}
}

// startDryRun fails with RESOURCE_EXHAUSTED, and says how long to wait, if a viewer starts another run too soon.
// Viewers start only dry runs.
func (l *limits) startDryRun(c access.Caller, req any) error {
	if _, ok := req.(*cleanupv1.RunCleanupRequest); !ok || c.Role > access.Viewer {
		return nil
	}
	l.mu.Lock()
	dryRuns := l.callers[c.String()].dryRuns // exists, because this call is one of the caller's streams
	l.mu.Unlock()
	next := dryRuns.Reserve()
	delay := next.Delay()
	if delay == 0 {
		return nil
	}
	next.Cancel()
	wait := delay.Truncate(time.Second) + time.Second
	return withDetails(codes.ResourceExhausted,
		fmt.Sprintf("%s may start %d dry runs at once, and then one every %s: wait %s", c, dryRunBurst, dryRunEvery,
			wait),
		&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
}

// limitActive limits how many unary calls of a caller use the database at once. It fails with RESOURCE_EXHAUSTED if the
// caller's other calls take too long. UserDataService is exempt.
func (l *limits) limitActive(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	service, _, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	if !slices.Contains(cleanupServices, service) {
		return handler(ctx, req)
	}
	who := access.FromContext(ctx).String()
	l.mu.Lock()
	slots := l.callers[who].slots
	l.mu.Unlock()
	timeout := time.NewTimer(l.turnTimeout)
	defer timeout.Stop()
	select {
	case slots <- struct{}{}:
		begun := time.Now()
		defer func() {
			time.AfterFunc(min(restFactor*time.Since(begun), maxRest), func() { <-slots })
		}()
		return handler(ctx, req)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-timeout.C:
		return nil, status.Errorf(codes.ResourceExhausted, "%s has had %d other calls in progress for %s: try again",
			who, maxActiveCalls, l.turnTimeout)
	}
}

// reportInterval is the time between two reports of a repeated rejection.
const reportInterval = time.Minute

// maxRejections limits how many kinds of rejections are kept apart. Further callers without valid credentials count
// as one caller.
const (
	maxRejections = 1000
	otherCallers  = "others"
)

// rejection identifies the calls that are reported together.
type rejection struct {
	who, what string
	code      codes.Code
}

// isCheap reports whether a call that ends with the code did nothing, so that a caller can repeat it quickly.
func isCheap(c codes.Code) bool {
	return c == codes.Unauthenticated || c == codes.PermissionDenied || c == codes.ResourceExhausted ||
		c == codes.InvalidArgument
}

// rejections counts repeated rejections, so that a flood makes few log lines.
type rejections struct {
	mu     sync.Mutex
	counts map[rejection]int // since the last report
}

// report calls first for the first rejection of its kind. While more arrive, it calls again at intervals with their
// number and their caller.
func (r *rejections) report(of rejection, first func(), again func(who string, times int)) {
	if !r.isFirst(&of) {
		return
	}
	first()
	var later func()
	later = func() {
		if times := r.takeCount(of); times > 0 {
			again(of.who, times)
			time.AfterFunc(reportInterval, later)
		}
	}
	time.AfterFunc(reportInterval, later)
}

// isFirst counts the rejection if it is not the first.
func (r *rejections) isFirst(of *rejection) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.counts[*of]
	if !known && of.code == codes.Unauthenticated && len(r.counts) >= maxRejections {
		*of = rejection{otherCallers, otherCallers, of.code}
		_, known = r.counts[*of]
	}
	if known {
		r.counts[*of]++
		return false
	}
	r.counts[*of] = 0
	return true
}

// takeCount returns and resets the number of rejections since the last report. If there were none, the next
// rejection is a first one again.
func (r *rejections) takeCount(of rejection) (times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if times = r.counts[of]; times == 0 {
		delete(r.counts, of)
	} else {
		r.counts[of] = 0
	}
	return times
}
