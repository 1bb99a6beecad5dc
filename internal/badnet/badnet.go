// Package badnet is a TCP proxy for tests that does to connections what bad networks do: it cuts, delays and
// half-closes them, at random or at the worst moment.
package badnet

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy stands between a client and a PostgreSQL server.
type Proxy struct {
	listener net.Listener
	latency  time.Duration
	wg       sync.WaitGroup

	mu       sync.Mutex
	target   string // the URL of the server
	pairs    map[*pair]bool
	stalled  time.Time // nothing passes before then
	atCommit Moment
	closed   bool
}

type Moment int

const (
	Never        Moment = iota
	BeforeCommit        // the server never sees it
	AfterCommit         // the server executes it, and its response is lost
)

type stream interface {
	net.Conn
	CloseWrite() error
}

// pair is a connection of a client and the corresponding one to the server.
type pair struct {
	client, server stream
	// mute says that the server's next response is lost with the connection. Guarded by the proxy.
	mute bool
	// commit is the name of the client's prepared COMMIT; nil if it has none yet. Guarded by the proxy.
	commit []byte
}

func (c *pair) commits(message []byte) bool {
	if before, _, prepared := bytes.Cut(message, []byte("\x00COMMIT\x00")); prepared {
		c.commit = bytes.Clone(before[max(bytes.LastIndex(before, []byte("stmtcache_")), 0):])
		return false
	}
	return bytes.Contains(message, []byte("commit\x00")) || (c.commit != nil && bytes.Contains(message, c.commit))
}

// New adds the latency in each direction. The proxy ends with the test.
func New(t testing.TB, databaseURL string, latency time.Duration) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, latency: latency, target: databaseURL, pairs: map[*pair]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		_ = listener.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

func (p *Proxy) URL(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		panic(err)
	}
	u.Host = p.listener.Addr().String()
	query := u.Query()
	query.Del("host")
	query.Del("port")
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return u.String()
}

func (p *Proxy) Cut() { p.each(cut) }

func (p *Proxy) HalfClose(toServer bool) {
	p.each(func(c *pair) {
		if toServer {
			_ = c.server.CloseWrite()
		} else {
			_ = c.client.CloseWrite()
		}
	})
}

func (p *Proxy) Stall(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = time.Now().Add(d)
}

// CutAtCommit cuts the next connection that commits.
func (p *Proxy) CutAtCommit(when Moment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.atCommit = when
}

// Target sends new connections to the server at another URL, and cuts the existing ones.
func (p *Proxy) Target(databaseURL string) {
	p.mu.Lock()
	p.target = databaseURL
	p.mu.Unlock()
	p.Cut()
}

func (p *Proxy) each(do func(*pair)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		do(c)
	}
}

// cut resets both ends, so that nothing in flight arrives.
func cut(c *pair) {
	for _, conn := range []stream{c.client, c.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	var server net.Conn
	config, err := pgconn.ParseConfig(target)
	if err == nil {
		server, err = net.Dial(pgconn.NetworkAddress(config.Host, config.Port))
	}
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	c := &pair{client: client, server: server.(stream)}
	p.mu.Lock()
	if p.closed {
		cut(c)
	}
	p.pairs[c] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(c, c.client, c.server) })
	both.Go(func() { p.pump(c, c.server, c.client) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
	_ = c.client.Close()
	_ = c.server.Close()
}

func (p *Proxy) pump(c *pair, from, to stream) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			time.Sleep(p.delay())
			if !p.passes(c, from == c.client, buffer[:n]) {
				cut(c)
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = to.CloseWrite()
			return
		}
	}
}

func (p *Proxy) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.latency, time.Until(p.stalled))
}

// passes returns false if the connection must be cut.
func (p *Proxy) passes(c *pair, fromClient bool, message []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !fromClient {
		return !c.mute
	}
	if !c.commits(message) || p.atCommit == Never {
		return true
	}
	c.mute = p.atCommit == AfterCommit
	p.atCommit = Never
	return c.mute
}
