package transport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"github.com/klauspost/compress/gzhttp"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/cleanupd/cleanupd"
	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/rowkey"
)

// gateway calls the server over a connection in memory, because the generated in-process handlers cannot stream.
func (s *Server) gateway() (http.Handler, error) {
	conn, err := grpc.NewClient("passthrough:///gateway", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(redactingHandler{otelgrpc.NewClientHandler()}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxResponse)),
		grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return s.pipe.DialContext(ctx) }))
	if err != nil {
		return nil, err
	}
	s.gatewayConn = conn
	strict := strictJSON{&runtime.JSONPb{MarshalOptions: protojson.MarshalOptions{EmitDefaultValues: true}}}
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, strict),
		runtime.WithMarshalerOption(ndjson, ndjsonMarshaler{strict}),
		runtime.WithErrorHandler(callError),
		runtime.WithStreamErrorHandler(func(ctx context.Context, err error) *status.Status {
			if r, ok := ctx.Value(streamed{}).(*http.Request); ok {
				return violation(r, status.Convert(err))
			}
			return status.Convert(err) // of a path that only the gateway knows, such as /v1/runs/x%2fevents
		}),
		runtime.WithRoutingErrorHandler(routingError),
		runtime.WithMiddlewares(strictRoute),
		runtime.WithMetadata(callerMetadata),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithForwardResponseOption(setRequestID),
		// Otherwise a POST of a form would be treated as a GET.
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
	)
	ctx, client := context.Background(), cleanupd.NewClient(conn)
	return negotiate(mux), errors.Join(
		cleanupv1.RegisterCleanupServiceHandlerClient(ctx, mux, client),
		cleanupv1.RegisterGuardServiceHandlerClient(ctx, mux, client),
		cleanupv1.RegisterPolicyServiceHandlerClient(ctx, mux, client),
		cleanupv1.RegisterInsightServiceHandlerClient(ctx, mux, client),
		cleanupv1.RegisterServerServiceHandlerClient(ctx, mux, client),
		cleanupv1.RegisterRestoreServiceHandlerClient(ctx, mux, client),
		cleanupv1.RegisterUserDataServiceHandlerClient(ctx, mux, client))
}

// pipe is the listener in memory to which only the gateway connects. Its connections are recognized by their address.
type pipe struct{ *bufconn.Listener }

func (p pipe) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	return gatewayConn{conn}, err
}

type gatewayConn struct{ net.Conn }

func (c gatewayConn) RemoteAddr() net.Addr { return gatewayAddr{c.Conn.RemoteAddr()} }

type gatewayAddr struct{ net.Addr }

// streamed is the key of the request of a stream in its context.
type streamed struct{}

// setRequestID sets the header with the id of the call that produced the response.
func setRequestID(ctx context.Context, w http.ResponseWriter, _ proto.Message) error {
	if md, ok := runtime.ServerMetadataFromContext(ctx); ok && len(md.HeaderMD.Get(requestHeader)) > 0 {
		w.Header().Set(requestHeader, md.HeaderMD.Get(requestHeader)[0])
	}
	return nil
}

// negotiate sends a stream as one JSON object per line, unless the caller accepts application/json. It compresses long
// responses, and answers HEAD with the headers of GET.
func negotiate(next http.Handler) http.Handler {
	compressed := gzhttp.GzipHandler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := r.Method == http.MethodHead
		if _, ok := operationsOf(r.URL)[http.MethodGet]; head && ok {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			r = r.Clone(ctx)
			r.Method = http.MethodGet
			w = &headOnly{w, cancel}
		}
		if operationsOf(r.URL)[r.Method].stream {
			w.Header().Set("X-Accel-Buffering", "no") // a proxy must not collect events
			r = r.Clone(context.WithValue(r.Context(), streamed{}, r))
			if !accepts(r, "application/json") {
				r.Header.Set("Accept", ndjson)
			}
			next.ServeHTTP(w, r)
			return
		}
		compressed.ServeHTTP(w, r)
	})
}

func accepts(r *http.Request, want string) bool {
	for _, header := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(header, ",") {
			if given, _, err := mime.ParseMediaType(one); err == nil && given == want {
				return true
			}
		}
	}
	return false
}

// headOnly ends a stream once its headers are written. The HTTP server itself drops the body of an answer to HEAD.
type headOnly struct {
	http.ResponseWriter
	end context.CancelFunc
}

func (w *headOnly) Write(p []byte) (int, error) {
	defer w.end()
	return w.ResponseWriter.Write(p)
}

func (w *headOnly) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// strictRoute rejects query parameters that the route does not accept, because the gateway would ignore them and a
// misplaced dry_run would start a real run. It also rejects a body where the route takes none, a body whose type is not
// JSON (a browser sends other types to any site without asking first), and a method that the path does not have, such
// as GET with the verb :cancel.
func strictRoute(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, params map[string]string) {
		route, ok := operationsOf(r.URL)[r.Method]
		err := checkAddress(r.URL, route.query)
		if err == nil && !route.body {
			err = checkNoBody(r.Body)
		}
		given, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		switch {
		case !ok:
			routingError(r.Context(), nil, nil, w, r, http.StatusMethodNotAllowed)
			return
		case err != nil:
			writeError(w, r, status.Error(codes.InvalidArgument, err.Error()))
			return
		case route.body && given != "application/json":
			writeStatus(w, r, http.StatusUnsupportedMediaType,
				status.New(codes.InvalidArgument, "the route requires Content-Type: application/json"))
			return
		}
		next(w, r, params)
	}
}

// checkAddress refuses query parameters that are not allowed, and anything that is not UTF-8.
func checkAddress(u *url.URL, allowed []string) error {
	query, err := url.ParseQuery(u.RawQuery) // not u.Query(), which drops malformed parameters
	if err != nil {
		return fmt.Errorf("the query cannot be read: %w", err)
	}
	for name, values := range query {
		switch {
		case !slices.Contains(allowed, name):
			return wrongField("query", name, "there is no such parameter"+flags.Similar(name, allowed))
		case len(values) > 1:
			return wrongField("query", name, fmt.Sprintf("is given %d times", len(values)))
		case !utf8.ValidString(values[0]):
			return wrongField("query", strings.ToValidUTF8(name, "?"), "is not UTF-8")
		}
	}
	if !utf8.ValidString(u.Path) {
		return errors.New("the path is not UTF-8")
	}
	return nil
}

// checkNoBody accepts nothing but an empty message. It reads only the beginning of the body.
func checkNoBody(body io.Reader) error {
	const little = 64
	begin, err := io.ReadAll(io.LimitReader(body, little))
	text := strings.Join(strings.Fields(string(begin)), "")
	if err == nil && ((text != "" && text != "{}") || len(begin) == little) {
		err = errors.New("the route takes no body")
	}
	return err
}

// queryParser reads the key of a row in the form in which people write it, which protobuf's query parameters cannot
// express. Its errors name the parameter.
type queryParser struct{ runtime.DefaultQueryParser }

// The library has only one parser for all multiplexers of a process, so it is set before any of them answers.
func init() { runtime.SetQueryParameterParser(queryParser{})(nil) }

func (p queryParser) Parse(message proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	if in, ok := message.(*cleanupv1.ExplainRowRequest); ok {
		in.Key = rowkey.Parse(values.Get("key"))
		values.Del("key")
	}
	for name, value := range values {
		err := p.DefaultQueryParser.Parse(message, url.Values{name: value}, filter)
		if err != nil {
			problem := cmp.Or(expected(message.ProtoReflect().Descriptor(), name, false), err.Error())
			return wrongField("query", name, problem)
		}
	}
	return nil
}

// callError answers with the error of a call.
func callError(
	ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error,
) {
	_ = setRequestID(ctx, w, nil)
	writeError(w, r, err)
}

// routingError answers a request that is no call.
func routingError(
	_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int,
) {
	switch code {
	case http.StatusMethodNotAllowed:
		if others := operationsOf(r.URL); others != nil {
			allowed := slices.Collect(maps.Keys(others))
			if slices.Contains(allowed, http.MethodGet) {
				allowed = append(allowed, http.MethodHead)
			}
			slices.Sort(allowed)
			w.Header().Set("Allow", strings.Join(allowed, ", "))
		}
		writeStatus(w, r, code, status.Newf(codes.Unimplemented, "%s is not allowed on %s", r.Method, r.URL.Path))
	case http.StatusNotFound:
		writeStatus(w, r, code, status.Newf(codes.NotFound, "there is no %s", r.URL.Path))
	default:
		writeStatus(w, r, code, status.New(codes.InvalidArgument, http.StatusText(code)))
	}
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	s := status.Convert(err)
	var routing *runtime.HTTPStatusError
	if errors.As(err, &routing) {
		s = status.Convert(routing.Err)
	}
	writeStatus(w, r, runtime.HTTPStatusFromCode(s.Code()), violation(r, s))
}

// writeStatus wraps the status in {"error": …} if the route streams, as the gateway does in mid-stream.
func writeStatus(w http.ResponseWriter, r *http.Request, code int, s *status.Status) {
	body, err := marshal(s.Proto(), protojson.MarshalOptions{EmitDefaultValues: true}.Marshal)
	if err != nil {
		body = []byte(`{"code":13,"message":"the error cannot be written as JSON"}`)
	}
	if operationsOf(r.URL)[r.Method].stream {
		body = slices.Concat([]byte(`{"error":`), body, []byte("}"))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}

// operation is a method of a path, as the OpenAPI description defines it.
type operation struct {
	query  []string // the names of its query parameters, in both spellings
	body   bool     // whether it takes a body
	in     string   // the field of the request that is the body, "" for the whole request
	stream bool     // whether it responds with a stream
}

type path struct {
	template   string
	pattern    *regexp.Regexp
	operations map[string]operation
}

// paths has the longest template first, because /v1/runs/{runId}:cancel must be tried before /v1/runs/{runId},
// which matches it too.
var paths = readPaths(cleanupd.OpenAPI)

var (
	placeholder = regexp.MustCompile(`\{\w+\}`)
	capital     = regexp.MustCompile(`[A-Z]`)
)

func readPaths(description string) (list []path) {
	var api struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   struct{ Pattern string }
			}
			RequestBody *struct {
				Field string `json:"x-originalParamName"`
			}
			Responses map[string]struct{ Content map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(description), &api); err != nil {
		panic(err)
	}
	for template, methods := range api.Paths {
		p := path{template, nil, map[string]operation{}}
		pattern := template
		for method, described := range methods {
			o := operation{
				body:   described.RequestBody != nil,
				stream: described.Responses["200"].Content[ndjson] != nil,
			}
			if o.body && described.RequestBody.Field != "body" {
				o.in = described.RequestBody.Field
			}
			for _, parameter := range described.Parameters {
				switch {
				case parameter.In == "path" && parameter.Schema.Pattern != "": // the value may contain slashes
					pattern = strings.ReplaceAll(pattern, "{"+parameter.Name+"}", parameter.Schema.Pattern)
				case parameter.In == "query":
					o.query = append(o.query, parameter.Name)
					name := strings.ToLower(capital.ReplaceAllString(parameter.Name, "_$0"))
					if name != parameter.Name {
						o.query = append(o.query, name)
					}
				}
			}
			p.operations[strings.ToUpper(method)] = o
		}
		p.pattern = regexp.MustCompile("^" + placeholder.ReplaceAllString(pattern, "[^/]+") + "$")
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b path) int { return len(b.template) - len(a.template) })
	return list
}

// operationsOf returns the operations of a path by method, or nil if the API has no such path.
func operationsOf(u *url.URL) map[string]operation {
	for _, p := range paths {
		if p.pattern.MatchString(u.EscapedPath()) {
			return p.operations
		}
	}
	return nil
}
