package purge

import (
	"context"
	"encoding/json"
	"fmt"
)

// explained is the planner's estimate of a sweep.
type explained struct {
	rows    int64
	indexes []string // the names of those that it would use
}

// node is a node of a plan, as EXPLAIN gives it.
type node struct {
	Rows  float64 `json:"Plan Rows"`
	Index string  `json:"Index Name"`
	Plans []node  `json:"Plans"`
}

func (n node) collect(p *explained) {
	if n.Index != "" {
		p.indexes = append(p.indexes, n.Index)
	}
	for _, child := range n.Plans {
		child.collect(p)
	}
}

func (sw *sweep) explain(ctx context.Context) (p explained, err error) {
	var plan string
	if err := sw.read(
		ctx,
		[]any{&plan},
		"EXPLAIN (FORMAT JSON) SELECT FROM "+sw.matching(),
		sw.matchingArgs()...); err != nil {
		return p, fmt.Errorf("ask the planner about %s: %w", sw.Name, err)
	}
	var nodes []struct{ Plan node }
	if err := json.Unmarshal([]byte(plan), &nodes); err != nil {
		return p, fmt.Errorf("ask the planner about %s: %w", sw.Name, err)
	}
	p.rows = int64(nodes[0].Plan.Rows)
	nodes[0].Plan.collect(&p)
	return p, nil
}

// ScanMethod tells how the rows of a sweep would be found now: by an index, by a key, or by reading the table. It changes and
// locks nothing.
func (e *Engine) ScanMethod(ctx context.Context, s Sweep) (way string, err error) {
	if s.Elsewhere {
		return "key " + s.ByKey, s.RemoteError()
	}
	err = e.open(ctx, []Sweep{s}, func(sw *sweep) error {
		t, err := sw.inspect(ctx)
		if err != nil {
			return err
		}
		index, _, err := sw.choose(ctx, t)
		if way = "table"; index != "" {
			way = "index " + index
		}
		return err
	})
	return way, err
}

// SQL is the statement on the rows of a sweep, without the part of the table that each batch is for.
func (s *Sweep) SQL() string {
	return (&sweep{Sweep: *s}).verb() + " WHERE " + s.Where
}
