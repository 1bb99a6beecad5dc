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

// A connection is called a stranger until a call on it is authenticated. MaxOfNetwork limits the strangers of one
// network (networkOf), maxStrangers those of all networks. When a limit is reached and another connection arrives, the
// oldest stranger is closed once it has had minStrangerTime. A plain limit, like netutil.LimitListener, would let
// whoever opens connections first keep out everybody else (TestFlood).
const (
	MaxOfNetwork    = 128
	maxStrangers    = 256
	minStrangerTime = 250 * time.Millisecond
)

// connLimiter limits the connections without an authenticated call, of all listeners together.
type connLimiter struct {
	mu        sync.Mutex
	strangers []*strangerConn // the oldest first
}

// strangerConn is a connection that is a stranger until a call on it is authenticated.
type strangerConn struct {
	net.Conn
	limiter *connLimiter
	network string
	since   time.Time
	rate    atomic.Pointer[rate.Limiter]

	open     context.Context // done when the connection is closed
	stranger context.Context // done when a call on it is authenticated, or when it is closed

	mu          sync.Mutex
	close, know context.CancelFunc // end open and stranger
	release     func()             // gives back the caller's slot; nil while the connection is a stranger
}

type limitedListener struct {
	net.Listener
	limiter *connLimiter
}

// Accept closes the oldest stranger, after it has had minStrangerTime, as long as there are too many strangers.
func (d limitedListener) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &strangerConn{
		Conn:    conn,
		limiter: d.limiter,
		network: networkOf(conn.RemoteAddr().String()),
		since:   time.Now(),
	}
	c.open, c.close = context.WithCancel(context.Background())
	c.stranger, c.know = context.WithCancel(c.open)
	c.rate.Store(rate.NewLimiter(strangerBytesPerSecond, strangerBurst))
	for first := d.limiter.add(c); first != nil; first = d.limiter.add(c) {
		select {
		case <-first.stranger.Done():
		case <-time.After(time.Until(first.since.Add(minStrangerTime))):
			_ = first.Close()
		}
	}
	return c, nil
}

// add adds a stranger. If there is no room for it, first is the stranger that must be closed first.
func (l *connLimiter) add(c *strangerConn) (first *strangerConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := 0
	for _, s := range l.strangers {
		if s.network == c.network {
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
	l.strangers = append(l.strangers, c)
	return nil
}

func (l *connLimiter) remove(c *strangerConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strangers = slices.DeleteFunc(l.strangers, func(s *strangerConn) bool { return s == c })
}

// Read waits as long as necessary to keep to the connection's rate.
func (c *strangerConn) Read(p []byte) (int, error) {
	const maxRead = 16 << 10
	n, err := c.Conn.Read(p[:min(len(p), maxRead)])
	within := c.stranger
	if within.Err() != nil { // it has the rate of its caller by now
		within = c.open
	}
	_ = c.rate.Load().WaitN(within, n)
	return n, err
}

func (c *strangerConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() == nil {
		c.close()
		c.limiter.remove(c)
		if c.release != nil {
			c.release()
		}
	}
	return c.Conn.Close()
}

// CloseWrite lets the HTTP server close one direction, so that a client can read the response to a request that is too
// large.
func (c *strangerConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// RemoteAddr returns an address through which a call can find its connection.
func (c *strangerConn) RemoteAddr() net.Addr { return origin{c.Conn.RemoteAddr(), c} }

type origin struct {
	net.Addr
	conn *strangerConn
}

// authenticated moves the call's connection from the strangers to its caller's own limit. It fails if that limit is
// reached.
func (l *limits) authenticated(ctx context.Context, who string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	from, ok := p.Addr.(origin)
	if !ok { // the connection of the gateway
		return nil
	}
	c := from.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stranger.Err() != nil {
		return nil
	}
	u, release, err := l.acquire(who, access.Nobody, connectionSlot)
	if err != nil {
		return err
	}
	c.release = release
	c.rate.Store(u.bytes)
	c.know()
	c.limiter.remove(c)
	return nil
}

// networkOf returns the network that presumably belongs to one party: an IPv4 address, or the /64 of an IPv6
// address.
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
