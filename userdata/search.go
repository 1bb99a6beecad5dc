package userdata

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/userdata/forms"
)

// Query is the person to search for.
type Query struct {
	// UserID is the canonical name of a principal.
	UserID string
	// Variables are also searched for the user id.
	Variables []Variable
	// PrincipalIDs restricts the search to some principals of the user id; if it is empty, all of them are searched
	// for.
	PrincipalIDs []string
}

// Variable is a variable of a workflow, or all of its variables if Name is empty.
type Variable struct{ Application, Workflow, Name string }

func (v Variable) String() string {
	name := v.Name
	if name == "" {
		name = "all variables"
	}
	return fmt.Sprintf("%s of workflow %s/%s", name, v.Application, v.Workflow)
}

type Found struct {
	Principals  []string
	Instances   []Instance
	OrphanTasks []int64
	NotSearched []string // what could not be searched, and why
}

// Instance has no status and no invocation if the process instance itself is gone and only other rows of it are
// left.
type Instance struct {
	forms.Instance
	Reasons []Reason
}

// Certain reports whether the process instance is certainly the person's: if a variable contains the user id only as
// a part of something longer, that may be a coincidence.
func (in Instance) Certain() bool {
	return slices.ContainsFunc(in.Reasons, func(r Reason) bool { return r.Match != Part })
}

type Reason struct {
	Kind     Kind
	Variable Variable // only for InVariable
	Match    Match    // only for InVariable
}

// Kind says how a person is involved in a process instance.
type Kind string

const (
	Initiator   Kind = "INITIATOR"
	Participant Kind = "PARTICIPANT"
	InVariable  Kind = "VARIABLE"
)

// Match says how a variable contains a user id.
type Match string

// The most certain match comes first.
const (
	Whole Match = "WHOLE"
	Word  Match = "WORD"
	Part  Match = "PART"
)

// Find reads one snapshot of the database.
func (m *Manager) Find(ctx context.Context, q Query) (result *Found, err error) {
	err = m.snapshot(ctx, func(tx *forms.Transaction) error {
		result, err = search(ctx, tx, q)
		return err
	})
	return result, err
}

// ErrNotPrincipal means that a given principal does not belong to the user id.
var ErrNotPrincipal = failure.Field("principal_ids", "is not a principal of this user id")

// ErrNoVariable means that the database has no such workflow or variable.
var ErrNoVariable = failure.New(failure.NotFound, "no such")

// These queries may return too many rows, since a collation may treat different texts as equal. Their last column is
// the text that must be compared exactly.
const (
	principalsQuery = "SELECT id, canonicalname FROM edcprincipalentity WHERE canonicalname = @user"
	initiatedQuery  = "SELECT process_instance_id, id, create_user_id FROM tb_task WHERE start_task = 1 AND " +
		"create_user_id IN (@principals)"
	participantQuery = `SELECT DISTINCT a.process_instance_id, CASE
		WHEN a.process_instance_id = 0 THEN a.task_id ELSE 0 END, q.workflow_user_id
		FROM tb_assignment a JOIN tb_queue q ON a.queue_id = q.id WHERE q.workflow_user_id IN (@principals)`
)

type searcher struct {
	tx      *forms.Transaction
	user    string
	reasons map[int64][]Reason // reasons by process instance
	orphans map[int64]bool
}

func search(ctx context.Context, tx *forms.Transaction, q Query) (*Found, error) {
	s := &searcher{tx, q.UserID, map[int64][]Reason{}, map[int64]bool{}}
	result := &Found{}
	var err error
	if result.Principals, err = s.principals(ctx); err != nil {
		return nil, fmt.Errorf("find the principals: %w", err)
	}
	for _, id := range q.PrincipalIDs {
		if !slices.Contains(result.Principals, id) {
			return nil, fmt.Errorf("%q %w", id, ErrNotPrincipal)
		}
	}
	principals := result.Principals
	if len(q.PrincipalIDs) > 0 {
		principals = q.PrincipalIDs
	}
	if err := s.searchTasks(ctx, Initiator, initiatedQuery, principals); err != nil {
		return nil, err
	}
	if err := s.searchTasks(ctx, Participant, participantQuery, principals); err != nil {
		return nil, err
	}
	for _, v := range q.Variables {
		skipped, err := s.searchVariable(ctx, v)
		if err != nil {
			return nil, err
		}
		result.NotSearched = append(result.NotSearched, skipped...)
	}
	result.OrphanTasks = slices.Sorted(maps.Keys(s.orphans))
	result.Instances, err = s.instances(ctx)
	return result, err
}

func (s *searcher) principals(ctx context.Context) (ids []string, err error) {
	var id, name string
	err = s.tx.Each(ctx, principalsQuery, forms.Args{"user": s.user}, []any{&id, &name}, func() {
		if name == s.user {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	return ids, err
}

// searchTasks adds the process instances and orphan tasks that a query returns for the principals.
func (s *searcher) searchTasks(ctx context.Context, kind Kind, query string, principals []string) error {
	var instance, task sql.NullInt64
	var principal string
	args := forms.Args{"principals": principals}
	if err := s.tx.Each(ctx, query, args, []any{&instance, &task, &principal}, func() {
		switch {
		case !instance.Valid || !slices.Contains(principals, principal):
		case instance.Int64 > 0:
			s.add(instance.Int64, Reason{Kind: kind})
		case instance.Int64 == 0 && task.Int64 > 0:
			s.orphans[task.Int64] = true
		}
	}); err != nil {
		return fmt.Errorf("find the process instances: %w", err)
	}
	return nil
}

func (s *searcher) add(instance int64, r Reason) {
	if !slices.Contains(s.reasons[instance], r) {
		s.reasons[instance] = append(s.reasons[instance], r)
	}
}

// number matches user ids that are numbers which a database can cast.
var number = regexp.MustCompile(`^-?[0-9]{1,1000}(\.[0-9]{1,1000})?$`)

// searchVariable returns descriptions of the variables that could not be searched.
func (s *searcher) searchVariable(ctx context.Context, v Variable) (skipped []string, err error) {
	name := "pt_" + v.Application + "/" + v.Workflow
	columns, known, err := s.tx.WorkflowColumns(ctx, func(n string) bool { return n == name })
	switch {
	case err != nil:
		return nil, fmt.Errorf("find the variables: %w", err)
	case !known:
		return nil, fmt.Errorf("%w workflow: %s/%s", ErrNoVariable, v.Application, v.Workflow)
	case len(columns) == 0:
		return []string{fmt.Sprintf("%s: its table does not look like the table of a workflow", v)}, nil
	}
	instance := map[string]string{} // the column with the process instance, by table
	for _, c := range columns {
		if c.Ambiguous {
			return []string{
				fmt.Sprintf("%s: several tables have the name of its table, in upper and lower case", v),
			}, nil
		}
		if c.Instance {
			instance[c.Table] = s.tx.Quote(c.Name)
		}
	}
	columns = slices.DeleteFunc(columns, func(c forms.Column) bool {
		return c.Instance || (v.Name != "" && c.Name != v.Name)
	})
	if v.Name != "" && len(columns) == 0 {
		return nil, fmt.Errorf("%w variable: %s", ErrNoVariable, v)
	}
	for _, c := range columns {
		v.Name = c.Name
		condition, value, ok := s.tx.Contains(c)
		switch {
		case !ok:
			skipped = append(skipped, fmt.Sprintf("%s: a column of type %s cannot be searched", v, c.Type))
			continue
		case c.Number && !number.MatchString(s.user):
			continue
		}
		query := fmt.Sprintf("SELECT %s, %s FROM %s WHERE %s", instance[c.Table], value, c.Quoted, condition)
		if err := s.addMatches(ctx, query, v, c.Number); err != nil {
			return nil, fmt.Errorf("search %s: %w", v, err)
		}
	}
	return skipped, nil
}

// addMatches adds the most certain match of each process instance.
func (s *searcher) addMatches(ctx context.Context, query string, v Variable, isNumber bool) error {
	best := map[int64]Match{}
	var instance, value any
	if err := s.tx.Each(ctx, query, forms.Args{"user": s.user}, []any{&instance, &value}, func() {
		id, text := forms.ID(instance), forms.Text(value)
		if id == 0 || (isNumber && !equalNumbers(text, s.user)) {
			return
		}
		how := Whole
		if !isNumber {
			how = match(text, s.user)
		}
		if known := best[id]; known == "" || known == Part || how == Whole {
			best[id] = how
		}
	}); err != nil {
		return err
	}
	for id, how := range best {
		s.add(id, Reason{Kind: InVariable, Variable: v, Match: how})
	}
	return nil
}

func equalNumbers(a, b string) bool {
	x, xOK := new(big.Rat).SetString(a)
	y, yOK := new(big.Rat).SetString(b)
	return xOK && yOK && x.Cmp(y) == 0
}

// match returns how the text, which is known to contain the user id, contains it.
func match(text, user string) Match {
	if text == user {
		return Whole
	}
	for from := 0; ; {
		i := strings.Index(text[from:], user)
		if i < 0 {
			return Part
		}
		begin := from + i
		end := begin + len(user)
		before, _ := utf8.DecodeLastRuneInString(text[:begin])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if (begin == 0 || !inWord(before)) && (end == len(text) || !inWord(after)) {
			return Word
		}
		_, size := utf8.DecodeRuneInString(text[begin:])
		from = begin + size
	}
}

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_.-@", r)
}

const idsPerQuery = 1000

// instances returns the process instances that were found, ordered by id.
func (s *searcher) instances(ctx context.Context) (list []Instance, err error) {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(s.reasons)), idsPerQuery) {
		existing, err := s.tx.Instances(ctx, ids, "")
		if err != nil {
			return nil, fmt.Errorf("read the process instances: %w", err)
		}
		for _, id := range ids {
			in := Instance{forms.Instance{ID: id}, s.reasons[id]}
			if existing[id] != nil {
				in.Instance = *existing[id]
			}
			list = append(list, in)
		}
	}
	return list, nil
}

// BlindSpots describes, for people, data that cannot be found in the tables of the database.
func (m *Manager) BlindSpots() []string {
	spots := []string{
		"process instances that a watched folder started: who started them is encoded in their stored data",
		"process instances that a publish instance started: they do not store who started them",
		"process instances that an e-mail started: the sender is in an opaque column of tb_job_instance",
	}
	if m.Server == nil {
		spots = append(spots,
			"documents of process variables in the document storage (GDS): only the Forms server knows which they are")
	}
	return append(spots, "the contents of documents")
}
