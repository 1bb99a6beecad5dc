package transport

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/cleanupd/cleanupd"
)

// operation is what the OpenAPI description says about one method of a path.
type operation struct {
	query  []string // the names of its query parameters, in both spellings
	body   bool     // it takes a body
	stream bool     // it responds with a stream
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
			RequestBody *struct{}
			Responses   map[string]struct{ Content map[string]any }
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
			for _, parameter := range described.Parameters {
				switch {
				case parameter.In == "path" && parameter.Schema.Pattern != "": // the value may contain slashes
					pattern = strings.ReplaceAll(pattern, "{"+parameter.Name+"}", parameter.Schema.Pattern)
				case parameter.In == "query":
					o.query = append(o.query, parameter.Name,
						strings.ToLower(capital.ReplaceAllString(parameter.Name, "_$0")))
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
