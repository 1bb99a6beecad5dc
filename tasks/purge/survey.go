package purge

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/sync/errgroup"
)

// Condition is a condition on a row r, with its parameters $1, $2 ….
type Condition struct {
	Where string
	Args  []any
}

// Claim is the rows of a table that a sweep will take, for a reading that counts those of several.
type Claim struct {
	Condition
	// But are the places of claims, before this one, whose rows it will not find.
	But []int
	// Date is SQL of the row's date, and Key its integer key; empty: there is none.
	Date, Key string
	// Paired are the rows that it takes with its own; nil: none.
	Paired *PairedClaim
}

// PairedClaim is the rows of a table that share their ids with those of a claim.
type PairedClaim struct {
	Paired
	// But are the rows of that table that will be gone by then.
	But []Condition
	// Before are claims of other tables that will have taken theirs by then, in the columns of the same names.
	Before []Taken
}

// Taken is the rows of a table that a claim takes, but for some that will be gone by then.
type Taken struct {
	Relation, ID string
	Condition
	But []Condition
}

// Tally is what a reading has found of a claim.
type Tally struct {
	// Rows is how many rows there are, Paired how many are paired with them, and Windows in how many parts of the table.
	Rows, Paired, Windows int64
	// Oldest and Newest are among the dates; nil: there is none.
	Oldest, Newest *time.Time
	// Keys are some of the keys.
	Keys []int64
}

// SampleSize is how many keys a tally has at most.
const SampleSize = 5

// Add adds what was found elsewhere.
func (t *Tally) Add(more Tally) {
	t.Rows, t.Paired, t.Windows = t.Rows+more.Rows, t.Paired+more.Paired, t.Windows+more.Windows
	if more.Oldest != nil && (t.Oldest == nil || more.Oldest.Before(*t.Oldest)) {
		t.Oldest = more.Oldest
	}
	if more.Newest != nil && (t.Newest == nil || more.Newest.After(*t.Newest)) {
		t.Newest = more.Newest
	}
	t.Keys = append(t.Keys, more.Keys[:min(len(more.Keys), SampleSize-len(t.Keys))]...)
}

// Survey reads a table once and counts the rows of several claims, changing and locking nothing. After each window it calls found with
// what that one has of each. While the server is otherwise idle, as many windows are read at once as there are workers.
func (e *Engine) Survey(ctx context.Context, name, relation string, claims []Claim, found func(ctx context.Context, window []Tally) error) error {
	return e.open(ctx, []Sweep{{Name: name, Relation: relation}}, func(sw *sweep) error {
		end, _, err := sw.end(ctx)
		if err != nil {
			return err
		}
		v := surveyOf(claims)
		if err := sw.session.planEach(ctx); err != nil {
			return err
		}
		readers := []*sweep{sw}
		defer func() {
			for _, r := range readers[1:] {
				r.session.end(ctx)
			}
		}()
		for first := int64(0); first < end; {
			if err := sw.Wait(ctx); err != nil {
				return err
			}
			n := 1
			if e.idle() {
				n = max(e.Workers, 1)
			}
			if readers, err = sw.readers(ctx, readers, n); err != nil {
				return err
			}
			windows := make([][]Tally, min(n, len(readers)))
			group, reading := errgroup.WithContext(ctx)
			for i := range windows {
				from := min(first+int64(i)*countBlocks, end)
				group.Go(func() (err error) {
					windows[i], err = v.window(reading, readers[i], blocks.bounds(from, min(from+countBlocks, end)))
					return err
				})
			}
			if err := group.Wait(); err != nil {
				return err
			}
			for _, tallies := range windows {
				v.sampled(tallies)
				if err := found(ctx, tallies); err != nil {
					return err
				}
			}
			first += int64(len(windows)) * countBlocks
		}
		return nil
	})
}

// spare is how many connections a reading leaves to others.
const spare = 3

// readers are some, with more up to a number if there are connections for them.
func (sw *sweep) readers(ctx context.Context, some []*sweep, n int) ([]*sweep, error) {
	for len(some) < n && sw.Pool.Stat().AcquiredConns()+spare < sw.Pool.Stat().MaxConns() {
		session, err := sw.Engine.session(ctx)
		if err != nil {
			return some, err
		}
		some = append(some, &sweep{Engine: sw.Engine, Sweep: sw.Sweep, session: session, axis: blocks})
		if err := session.planEach(ctx); err != nil {
			return some, err
		}
	}
	return some, nil
}

// survey is the SQL of a reading.
type survey struct {
	claims []Claim
	cases  []*firstOf
	is     []string // what is true, of a row of the reading, for each claim
	dates  []string // the columns of the reading that have them
	args   []any
	keys   []int // how many keys there are of each claim
}

// firstOf is a column that names the first of some claims whose condition is true. Of a claim that is only asked since it hides rows from
// others, there, the name is hidden.
type firstOf struct {
	asked []int
	when  string
}

const hidden = -1

func surveyOf(claims []Claim) *survey {
	v := &survey{claims: claims, keys: make([]int, len(claims))}
	wheres := make([]string, len(claims))
	for i, c := range claims {
		wheres[i] = inConstants(put(&v.args, c.Condition))
		at := slices.IndexFunc(v.cases, func(f *firstOf) bool { return slices.Equal(f.asked, c.But) })
		if at < 0 {
			at = len(v.cases)
			v.cases = append(v.cases, &firstOf{})
			for _, b := range c.But {
				v.cases[at].ask(b, wheres[b], hidden)
			}
		}
		v.cases[at].ask(i, wheres[i], i)
		v.is = append(v.is, fmt.Sprintf("q.c%d = %d", at, i))
		if c.Date != "" {
			v.dates = append(v.dates, fmt.Sprintf("%s AS d%d", c.Date, i))
		}
	}
	return v
}

func (f *firstOf) ask(claim int, where string, name int) {
	f.asked = append(f.asked, claim)
	f.when += fmt.Sprintf(" WHEN (%s) THEN %d", where, name)
}

// from is the reading of a window with some more columns, as q. OFFSET keeps PostgreSQL from judging a row more than once.
func (v *survey) from(sw *sweep, after int, more ...string) string {
	var columns []string
	for i, f := range v.cases {
		columns = append(columns, fmt.Sprintf("CASE%s END AS c%d", f.when, i))
	}
	return fmt.Sprintf("(SELECT %s FROM ONLY %s AS r WHERE %s OFFSET 0) AS q", strings.Join(slices.Concat(columns, v.dates, more), ", "), sw.Relation, blocks.window(after))
}

func (v *survey) count(ctx context.Context, sw *sweep, window []any) ([]Tally, error) {
	tallies := make([]Tally, len(v.claims))
	var columns []string
	var dest []any
	dates := make([][2]pgtype.Timestamptz, len(v.claims))
	for i, c := range v.claims {
		columns, dest = append(columns, fmt.Sprintf("count(*) FILTER (WHERE %s)", v.is[i])), append(dest, &tallies[i].Rows)
		if c.Date != "" {
			columns = append(columns, fmt.Sprintf("min(q.d%[1]d) FILTER (WHERE %[2]s)::timestamptz, max(q.d%[1]d) FILTER (WHERE %[2]s)::timestamptz", i, v.is[i]))
			dest = append(dest, &dates[i][0], &dates[i][1])
		}
	}
	sql := "SELECT " + strings.Join(columns, ", ") + " FROM " + v.from(sw, len(v.args))
	if err := sw.read(ctx, dest, sql, slices.Concat(v.args, window)...); err != nil {
		return nil, err
	}
	for i := range tallies {
		tallies[i].Oldest, tallies[i].Newest = finite(dates[i][0]), finite(dates[i][1])
		if tallies[i].Rows > 0 {
			tallies[i].Windows = 1
		}
	}
	return tallies, nil
}

// window is what a window has of each claim.
func (v *survey) window(ctx context.Context, sw *sweep, window []any) ([]Tally, error) {
	tallies, err := v.count(ctx, sw, window)
	for i := range tallies {
		if err == nil {
			err = v.more(ctx, sw, window, i, &tallies[i])
		}
	}
	return tallies, err
}

// sampled keeps as many keys as a tally may have, of all windows.
func (v *survey) sampled(tallies []Tally) {
	for i := range tallies {
		tallies[i].Keys = tallies[i].Keys[:min(len(tallies[i].Keys), SampleSize-v.keys[i])]
		v.keys[i] += len(tallies[i].Keys)
	}
}

// finite is a moment; nil: it is none, or infinite.
func finite(t pgtype.Timestamptz) *time.Time {
	if !t.Valid || t.InfinityModifier != pgtype.Finite {
		return nil
	}
	return &t.Time
}

// more adds the paired rows of a claim, and some keys, to what a window has of it.
func (v *survey) more(ctx context.Context, sw *sweep, window []any, i int, t *Tally) error {
	c := v.claims[i]
	if t.Rows == 0 {
		return nil
	}
	if keys := SampleSize - v.keys[i]; c.Key != "" && keys > 0 {
		sql := fmt.Sprintf("SELECT ARRAY(SELECT q.key FROM %s WHERE %s LIMIT %d)", v.from(sw, len(v.args), "r."+pgx.Identifier{c.Key}.Sanitize()+"::bigint AS key"), v.is[i], keys)
		if err := sw.read(ctx, []any{&t.Keys}, sql, slices.Concat(v.args, window)...); err != nil {
			return err
		}
	}
	if c.Paired == nil {
		return nil
	}
	args := slices.Clone(v.args)
	p := c.Paired
	there := fmt.Sprintf("r.%s <> 0%s", p.Key, unless(&args, p.But))
	sql := ""
	for _, b := range p.Before {
		sql += fmt.Sprintf(" AND NOT EXISTS (SELECT FROM ONLY %s AS r WHERE r.%s = t.id AND (%s)%s)", b.Relation, b.ID, put(&args, b.Condition), unless(&args, b.But))
	}
	sql = fmt.Sprintf("SELECT count(*) FROM (SELECT r.%s AS id FROM %s AS r WHERE %s) AS t WHERE t.id IN (SELECT q.id FROM %s WHERE %s)%s",
		p.Key, p.Relation, there, v.from(sw, len(args), "r."+p.ID+" AS id"), v.is[i], sql)
	return sw.read(ctx, []any{&t.Paired}, sql, slices.Concat(args, window)...)
}

// unless is the further condition that none of some is true.
func unless(args *[]any, conditions []Condition) (sql string) {
	for _, c := range conditions {
		sql += fmt.Sprintf(" AND (%s) IS NOT TRUE", put(args, c))
	}
	return sql
}

// Without is a sweep without the rows of which one of some conditions is true.
func (s Sweep) Without(conditions []Condition) Sweep {
	s.Args = slices.Clone(s.Args)
	s.Where = "(" + s.Where + ")" + unless(&s.Args, conditions)
	return s
}

// After is the condition with its parameters numbered after some others.
func (c Condition) After(others int) string {
	args := make([]any, others)
	return put(&args, c)
}

// token is a parameter in SQL, or what is not to be taken for one: a quoted name, or a text.
var token = regexp.MustCompile(`"(?:[^"]|"")*"|'(?:[^']|'')*'|\$[0-9]+`)

// put adds a condition's parameters to others, and returns it with their numbers.
func put(args *[]any, c Condition) string {
	before := len(*args)
	*args = append(*args, c.Args...)
	return token.ReplaceAllStringFunc(c.Where, func(found string) string {
		if n, err := strconv.Atoi(found[1:]); found[0] == '$' && err == nil {
			return "$" + strconv.Itoa(n+before)
		}
		return found
	})
}
