package transport

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/access"
)

// MaxResponse is the most bytes of a response. The largest is that of FindUserData, about a person with many process
// instances.
const MaxResponse = 64 << 20

// What a caller may send. No request of the API comes near these sizes.
const (
	maxRequest = 1 << 20
	maxHeaders = 64 << 10
)

// pace is how many bytes may arrive at once, and how many a second from then on. It bounds what is in memory of
// requests that have not arrived completely.
type pace struct {
	burst  int
	second rate.Limit
}

// A stranger is a connection on which nobody has shown who he is yet: its pace is enough for the largest headers of a
// first call, and for health checks. That of a caller is for all his connections together.
var (
	strangersPace = pace{maxHeaders + 8<<10, 2 << 10}
	callersPace   = pace{4 << 20, 256 << 10}
)

// A caller may make this many calls and streams at once, and so many a second from then on: a thousand watchers may
// come again at once.
const (
	callsAtOnce            = 2500
	callsEach   rate.Limit = 50
)

// So many sign-ins of a network go to the issuer at once, and so many a second from then on.
const (
	signInsAtOnce            = 30
	signInsEach   rate.Limit = 1
)

func (p pace) limiter() *rate.Limiter { return rate.NewLimiter(p.second, p.burst) }

// resource is what a caller may have only so much of at a time.
type resource int

const (
	aCall resource = iota
	aStream
	aConnection
	aCheck  // calls that need no credentials, by address
	aSignIn // by network
)

// How much a caller may have at a time, over gRPC and REST together. A thousand watchers may come from one address,
// behind a proxy.
const (
	MaxCalls       = 100
	MaxStreams     = 1400
	MaxConnections = 1000
	MaxChecks      = 50 // calls that need no credentials
)

// most is how much of each resource a caller may have at a time.
var most = [...]struct {
	n    int
	what string
}{
	aCall:       {MaxCalls, "calls"},
	aStream:     {MaxStreams, "streams"},
	aConnection: {MaxConnections, "connections"},
	aCheck:      {MaxChecks, "health checks"},
	aSignIn:     {signInsAtOnce, "sign-ins"},
}

// How many streams all callers may have together, each of which takes up to 128 KiB if nobody reads it, and how many
// more operators and administrators may have.
const (
	streamsInAll    = 1500
	streamsOfOthers = 100
)

// How many calls of a caller may be at work on the database at once. A turn rests for some times as long as a call took
// it, so that a caller who asks all the time has the database a quarter of the time, and the runs the rest.
const (
	turns       = 2
	rests       = 7
	longestRest = 2 * time.Second
)

// account is what a caller has at the moment.
type account struct {
	underWay [len(most)]int
	bytes    *rate.Limiter
	calls    *rate.Limiter
	signIns  *rate.Limiter
	turns    chan struct{}
}

// idle reports whether nothing would be forgotten with an account.
func (a *account) idle() bool {
	return a.underWay == [len(most)]int{} && a.calls.Tokens() >= float64(callsAtOnce) &&
		a.signIns.Tokens() >= float64(signInsAtOnce)
}

// limits are the accounts of callers.
type limits struct {
	turnTimeout time.Duration // how long a call waits for its turn

	mu       sync.Mutex
	accounts map[string]*account
	streams  int       // of all
	swept    time.Time // when idle accounts were last forgotten
}

// enter counts one more until leave is called, or fails with RESOURCE_EXHAUSTED if it is one too many.
func (l *limits) enter(who string, role access.Role, r resource) (a *account, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.swept) > time.Second {
		maps.DeleteFunc(l.accounts, func(_ string, a *account) bool { return a.idle() })
		l.swept = time.Now()
	}
	a = l.accounts[who]
	if a == nil {
		a = &account{
			bytes:   callersPace.limiter(),
			calls:   rate.NewLimiter(callsEach, callsAtOnce),
			signIns: rate.NewLimiter(signInsEach, signInsAtOnce),
			turns:   make(chan struct{}, turns),
		}
		l.accounts[who] = a
	}
	if a.underWay[r] >= most[r].n {
		return nil, func() {}, status.Errorf(
			codes.ResourceExhausted,
			"%s has %d %s under way, as many as one caller may: wait until one ends",
			who,
			most[r].n,
			most[r].what,
		)
	}
	if (r == aCall || r == aStream) && !a.calls.Allow() {
		return nil, func() {}, status.Errorf(
			codes.ResourceExhausted,
			"%s makes more than %v calls a second",
			who,
			callsEach,
		)
	}
	if r == aStream {
		inAll := streamsInAll
		if role > access.Viewer {
			inAll += streamsOfOthers
		}
		if l.streams >= inAll {
			return nil, func() {}, status.Errorf(
				codes.ResourceExhausted,
				"%d streams are under way, as many as there may be: wait until one ends",
				l.streams,
			)
		}
		l.streams++
	}
	if r == aSignIn && !a.signIns.Allow() {
		return nil, func() {}, status.Errorf(
			codes.ResourceExhausted,
			"%s signs in more than once a second: wait a moment",
			who,
		)
	}
	a.underWay[r]++
	return a, sync.OnceFunc(func() { l.leave(who, r) }), nil
}

func (l *limits) leave(who string, r resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accounts[who].underWay[r]--
	if r == aStream {
		l.streams--
	}
}

// inTurn lets only so many unary calls of a caller work on the database at once. It fails with RESOURCE_EXHAUSTED if
// the others take too long.
func (l *limits) inTurn(
	ctx context.Context,
	req any,
	info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (any, error) {
	if !strings.HasPrefix(info.FullMethod, "/"+cleanupv1.CleanupService_ServiceDesc.ServiceName+"/") {
		return handler(ctx, req)
	}
	who := access.FromContext(ctx).String()
	l.mu.Lock()
	free := l.accounts[who].turns
	l.mu.Unlock()
	late := time.NewTimer(l.turnTimeout)
	defer late.Stop()
	select {
	case free <- struct{}{}:
		begun := time.Now()
		defer func() {
			time.AfterFunc(min(rests*time.Since(begun), longestRest), func() { <-free })
		}()
		return handler(ctx, req)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-late.C:
		return nil, status.Errorf(
			codes.ResourceExhausted,
			"%s has %d other calls at work since %s: try again",
			who,
			turns,
			l.turnTimeout,
		)
	}
}
