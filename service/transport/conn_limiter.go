package transport

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"

	"github.com/cleanupd/cleanupd/service/access"
)

// How many strangers there may be, in all and from one network (networkOf), and how long one may stay while others wait
// for its place.
const (
	maxStrangers    = 256
	MaxOfNetwork    = 128
	strangersChance = 250 * time.Millisecond
)

// connLimiter is where connections are strangers, until a call on them is authenticated.
type connLimiter struct {
	mu        sync.Mutex
	strangers []*strangerConn // the oldest first
}

// strangerConn is a connection that a listener has accepted.
type strangerConn struct {
	net.Conn
	limiter *connLimiter
	network string
	since   time.Time
	pace    atomic.Pointer[rate.Limiter]
	known   chan struct{} // closed once a call is authenticated
	gone    chan struct{} // closed with the connection

	mu    sync.Mutex
	leave func() // the connection is not one of its caller's any more; nil: it is a stranger
}

// doors is a listener whose connections are visitors of a limiter.
type doors struct {
	net.Listener
	limiter *connLimiter
}

// Accept implements net.Listener. While there are too many strangers the oldest gives way, after its chance to say who
// it is.
func (d doors) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &strangerConn{
		Conn:    conn,
		limiter: d.limiter,
		network: networkOf(conn.RemoteAddr().String()),
		since:   time.Now(),
		known:   make(chan struct{}),
		gone:    make(chan struct{}),
	}
	v.pace.Store(strangersPace.limiter())
	for first := d.limiter.take(v); first != nil; first = d.limiter.take(v) {
		select {
		case <-first.known:
		case <-first.gone:
		case <-time.After(time.Until(first.since.Add(strangersChance))):
			_ = first.Close()
		}
	}
	return v, nil
}

// take takes a stranger in, or returns the one that must leave before.
func (l *connLimiter) take(v *strangerConn) (first *strangerConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := 0
	for _, s := range l.strangers {
		if s.network == v.network {
			if same++; first == nil {
				first = s
			}
		}
	}
	switch {
	case same >= MaxOfNetwork:
		return first
	case len(l.strangers) >= maxStrangers:
		return l.strangers[0]
	}
	l.strangers = append(l.strangers, v)
	return nil
}

func (l *connLimiter) remove(v *strangerConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strangers = slices.DeleteFunc(l.strangers, func(s *strangerConn) bool { return s == v })
}

// Read implements net.Conn. Nothing is read faster than at the visitor's pace.
func (v *strangerConn) Read(p []byte) (int, error) {
	const most = 16 << 10
	n, err := v.Conn.Read(p[:min(len(p), most)])
	if wait := v.pace.Load().ReserveN(time.Now(), n).Delay(); wait > 0 {
		known := v.known
		select {
		case <-known: // there is another pace now
			known = nil
		default:
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-known:
		case <-v.gone:
		}
	}
	return n, err
}

// Close implements net.Conn.
func (v *strangerConn) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.gone:
	default:
		close(v.gone)
		v.limiter.remove(v)
		if v.leave != nil {
			v.leave()
		}
	}
	return v.Conn.Close()
}

// CloseWrite is for the HTTP server, which thereby lets a client read the response to a request that is too large.
func (v *strangerConn) CloseWrite() error {
	if conn, ok := v.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// RemoteAddr implements net.Conn. By the address a call finds its connection.
func (v *strangerConn) RemoteAddr() net.Addr { return origin{v.Conn.RemoteAddr(), v} }

// origin is the address of a visitor.
type origin struct {
	net.Addr
	visitor *strangerConn
}

// introduce makes the connection of a call one of a caller's: it is no stranger from then on. It fails if he has too
// many.
func (l *limits) introduce(ctx context.Context, who string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	from, ok := p.Addr.(origin)
	if !ok { // the gateway's
		return nil
	}
	v := from.visitor
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.known:
		return nil
	case <-v.gone:
		return nil
	default:
	}
	a, leave, err := l.enter(who, access.Nobody, aConnection)
	if err != nil {
		return err
	}
	v.leave = leave
	v.pace.Store(a.bytes)
	close(v.known)
	v.limiter.remove(v)
	return nil
}

// networkOf is the network of an address that one party may be supposed to have to itself.
func networkOf(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := at.Addr().Unmap()
	if ip.Is4() {
		return ip.String()
	}
	within, _ := ip.Prefix(64)
	return within.String()
}
