package service_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/internal/suite"
	"github.com/cleanupd/cleanupd/service"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/tasks/rules"
)

// Whichever part of a policy is left out, it is either valid or refused for what is missing: by a server, and by the
// look at a database that commands without a server begin with.
func TestPoliciesWithAPartLeftOut(t *testing.T) {
	suite.Only(t, suite.Long)
	t.Parallel()
	db := database(t)
	db.Do("CREATE TABLE parent (id int PRIMARY KEY); " +
		"CREATE TABLE child (id int PRIMARY KEY, parent int, at timestamptz, state text, note text)")
	s := serve(t, db, false)
	whole := func() *cleanupv1.Policy {
		return &cleanupv1.Policy{
			Name: "p", Table: "child", Enabled: true, Limit: 10, Unreferenced: true,
			OlderThan:  &cleanupv1.OlderThan{Column: "at", Age: &cleanupv1.OlderThan_Days{Days: 3}},
			Filters:    []*cleanupv1.Filter{{Column: "state", Op: cleanupv1.FilterOp_FILTER_OP_EQUAL, Values: []string{"x"}}},
			OrphanOf:   &cleanupv1.OrphanOf{Column: "parent", ParentTable: "parent", ParentColumn: "id"},
			KeepNewest: &cleanupv1.KeepNewest{Count: 1, Per: []string{"state"}, OrderBy: "at"},
		}
	}
	assigning := whole()
	assigning.Assign = []*cleanupv1.Assign{{Column: "note", Value: new("x")}}
	detaching := &cleanupv1.Policy{
		Name: "p", Table: "child", Partitions: cleanupv1.Partitions_PARTITIONS_DETACH, OlderThan: whole().GetOlderThan(),
	}
	undoing := whole()
	undoing.Undo = durationpb.New(0)
	for i, p := range []*cleanupv1.Policy{whole(), assigning, detaching, undoing} {
		for _, path := range partsOf(p.ProtoReflect(), nil) {
			less := proto.CloneOf(p)
			leaveOut(less.ProtoReflect(), path)
			t.Run(fmt.Sprint(i, path), func(t *testing.T) { answersAlike(t, s, db.Pool, less) })
		}
	}
}

func answersAlike(t *testing.T, s *server, pool *pgxpool.Pool, p *cleanupv1.Policy) {
	_, set := s.SetPolicy(t.Context(), &cleanupv1.SetPolicyRequest{Policy: p, ValidateOnly: true})
	_, grants := s.GetPolicyGrants(t.Context(), &cleanupv1.GetPolicyGrantsRequest{Policy: p})
	for _, err := range []error{set, grants} {
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument && code != codes.FailedPrecondition {
			t.Errorf("the server answers %v", err)
		}
	}
	look := service.Look{
		Pool: pool, Profile: runs.ProfileAuto, Policies: []*cleanupv1.Policy{p},
		Event: func(*cleanupv1.RunEvent) error { return nil },
	}
	check := look.Check(t.Context())
	if (check == nil) != (set == nil) {
		t.Errorf("without a server: %v, with one: %v", check, set)
	}
	_, without := look.Grants(t.Context())
	look.Tasks = []string{"policy/" + p.GetName()}
	_, preview := look.Do(t.Context())
	for _, err := range []error{check, without, preview} {
		var (
			wrong failure.Violations
			lacks rules.MissingRights
			kind  failure.Kinded
		)
		if err != nil && !errors.As(err, &wrong) && !errors.As(err, &lacks) && !errors.As(err, &kind) {
			t.Errorf("a look answers %v", err)
		}
	}
}

// partsOf returns the paths of all fields that are set, each as the numbers of the fields; in a list those of its first
// element.
func partsOf(m protoreflect.Message, prefix []protoreflect.FieldNumber) (paths [][]protoreflect.FieldNumber) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := append(prefix[:len(prefix):len(prefix)], f.Number())
		paths = append(paths, path)
		switch {
		case f.Message() == nil || f.Message().ParentFile() != m.Descriptor().ParentFile():
		case f.IsList():
			paths = append(paths, partsOf(v.List().Get(0).Message(), path)...)
		default:
			paths = append(paths, partsOf(v.Message(), path)...)
		}
		return true
	})
	return paths
}

func leaveOut(m protoreflect.Message, path []protoreflect.FieldNumber) {
	f := m.Descriptor().Fields().ByNumber(path[0])
	switch {
	case len(path) == 1:
		m.Clear(f)
	case f.IsList():
		leaveOut(m.Get(f).List().Get(0).Message(), path[1:])
	default:
		leaveOut(m.Get(f).Message(), path[1:])
	}
}
