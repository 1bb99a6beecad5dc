package service

import (
	"context"
	"strings"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/internal/failure"
	"github.com/cleanupd/cleanupd/service/audit"
	"github.com/cleanupd/cleanupd/service/runs"
	"github.com/cleanupd/cleanupd/service/runs/store"
	"github.com/cleanupd/cleanupd/tasks/policy"
	"github.com/cleanupd/cleanupd/tasks/purge"
)

func (s *Service) ListPolicies(
	ctx context.Context, in *cleanupv1.ListPoliciesRequest,
) (*cleanupv1.ListPoliciesResponse, error) {
	list, err := store.ListPolicies(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(list, in.GetPageSize(), in.GetPageToken(),
		func(p store.Policy) string { return p.Name })
	if err != nil {
		return nil, err
	}
	out := &cleanupv1.ListPoliciesResponse{NextPageToken: next}
	for _, p := range page {
		out.Policies = append(out.Policies, describedPolicy(runs.DescribedPolicy{
			Policy:   p.Policy,
			Warnings: p.Unproven(),
		}))
	}
	return out, nil
}

func (s *Service) GetPolicy(ctx context.Context, in *cleanupv1.GetPolicyRequest) (*cleanupv1.GetPolicyResponse, error) {
	found, err := s.runs.Policy(ctx, in.GetName())
	if err != nil {
		return nil, err
	}
	return &cleanupv1.GetPolicyResponse{Policy: describedPolicy(found)}, nil
}

func (s *Service) SetPolicy(ctx context.Context, in *cleanupv1.SetPolicyRequest) (*cleanupv1.SetPolicyResponse, error) {
	given, mask := in.GetPolicy(), in.GetUpdateMask()
	name, err := nameOf("policy.name", given.GetName(), in.GetName())
	if err != nil {
		return nil, err
	}
	if err := checkMask(mask, given, "warnings", "masked_values").Err(); err != nil {
		return nil, err
	}
	if given.GetMaskedValues() > 0 {
		return nil, failure.Field("policy.masked_values",
			"the values of the policy are masked, as viewers see them: take it from an export of an operator or administrator")
	}
	stored, err := s.runs.SetPolicy(ctx, runs.PolicyChange{
		Name: name,
		Etag: given.GetEtag(),
		Make: func(before *policy.Policy) (policy.Policy, error) {
			if before == nil {
				if mask != nil {
					return policy.Policy{}, store.NoPolicy(name)
				}
				before = &policy.Policy{}
			}
			p := policyOf(merge(policyMessage(*before), given, mask))
			p.Name = name
			return p, nil
		},
		ValidateOnly: in.GetValidateOnly(),
	})
	if err != nil {
		return nil, err
	}
	if in.GetValidateOnly() {
		if err := audit.Note(ctx, nil, audit.Details{"policy": name, "validate_only": true}); err != nil {
			return nil, err
		}
	}
	return &cleanupv1.SetPolicyResponse{Policy: describedPolicy(stored)}, nil
}

func (s *Service) GetPolicyGrants(
	ctx context.Context, in *cleanupv1.GetPolicyGrantsRequest,
) (*cleanupv1.GetPolicyGrantsResponse, error) {
	statements, err := s.runs.PolicyGrants(ctx, policyOf(in.GetPolicy()))
	if err != nil {
		return nil, err
	}
	return &cleanupv1.GetPolicyGrantsResponse{Statements: statements}, nil
}

func (s *Service) DeletePolicy(
	ctx context.Context, in *cleanupv1.DeletePolicyRequest,
) (*cleanupv1.DeletePolicyResponse, error) {
	if err := s.runs.DeletePolicy(
		ctx, runs.PolicyChange{Name: in.GetName(), Etag: in.GetEtag()},
	); err != nil {
		return nil, err
	}
	return &cleanupv1.DeletePolicyResponse{}, nil
}

const filterOpPrefix = "FILTER_OP_"

// policyOf does not validate the policy.
func policyOf(m *cleanupv1.Policy) policy.Policy {
	p := policy.Policy{
		Name:        m.GetName(),
		Table:       m.GetTable(),
		Description: m.GetDescription(),
		Enabled:     m.GetEnabled(),
		Limit:       int(m.GetLimit()),
		Partitions:  partitionsOf(m.GetPartitions()),
		Undo:        parseUndo(m.GetUndo()),

		Unreferenced: m.GetUnreferenced(),
	}
	if a := m.GetOlderThan(); a != nil {
		p.OlderThan = &policy.OlderThan{Column: a.GetColumn()}
		switch age := a.GetAge().(type) {
		case *cleanupv1.OlderThan_Days:
			p.OlderThan.Days = new(int(age.Days))
		case *cleanupv1.OlderThan_Hours:
			p.OlderThan.Hours = new(int(age.Hours))
		}
	}
	for _, f := range m.GetFilters() {
		p.Filters = append(p.Filters, policy.Filter{
			Column: f.GetColumn(),
			Op:     strings.TrimPrefix(f.GetOp().String(), filterOpPrefix),
			Values: f.GetValues(),
		})
	}
	if o := m.GetOrphanOf(); o != nil {
		p.OrphanOf = &policy.OrphanOf{
			Column:       o.GetColumn(),
			ParentTable:  o.GetParentTable(),
			ParentColumn: o.GetParentColumn(),
		}
	}
	if k := m.GetKeepNewest(); k != nil {
		p.KeepNewest = &policy.KeepNewest{Per: k.GetPer(), OrderBy: k.GetOrderBy(), Count: int(k.GetCount())}
	}
	for _, a := range m.GetAssign() {
		p.Assign = append(p.Assign, policy.Assign{
			Column: a.GetColumn(), Value: a.Value, ValueFromKey: a.GetValueFromKey(),
		})
	}
	return p
}

const partitionsPrefix = "PARTITIONS_"

// partitionsOf returns the number as text if it is unknown, which validation refuses.
func partitionsOf(m cleanupv1.Partitions) purge.Partitions {
	if m == cleanupv1.Partitions_PARTITIONS_UNSPECIFIED {
		return ""
	}
	return purge.Partitions(strings.TrimPrefix(m.String(), partitionsPrefix))
}

func policyMessage(p policy.Policy) *cleanupv1.Policy {
	m := &cleanupv1.Policy{
		Name:        p.Name,
		Table:       p.Table,
		Description: p.Description,
		Enabled:     p.Enabled,
		Limit:       int32(p.Limit),
		Partitions:  enumOf[cleanupv1.Partitions](p.Partitions),
		Undo:        undoMessage(p.Undo),
		Etag:        p.Etag(),

		Unreferenced: p.Unreferenced,
	}
	if a := p.OlderThan; a != nil {
		m.OlderThan = &cleanupv1.OlderThan{Column: a.Column}
		switch {
		case a.Days != nil:
			m.OlderThan.Age = &cleanupv1.OlderThan_Days{Days: int32(*a.Days)}
		case a.Hours != nil:
			m.OlderThan.Age = &cleanupv1.OlderThan_Hours{Hours: int32(*a.Hours)}
		}
	}
	for _, f := range p.Filters {
		op := enumOf[cleanupv1.FilterOp](f.Op)
		m.Filters = append(m.Filters, &cleanupv1.Filter{Column: f.Column, Op: op, Values: f.Values})
	}
	if o := p.OrphanOf; o != nil {
		m.OrphanOf = &cleanupv1.OrphanOf{
			Column:       o.Column,
			ParentTable:  o.ParentTable,
			ParentColumn: o.ParentColumn,
		}
	}
	if k := p.KeepNewest; k != nil {
		m.KeepNewest = &cleanupv1.KeepNewest{Per: k.Per, OrderBy: k.OrderBy, Count: int32(k.Count)}
	}
	for _, a := range p.Assign {
		m.Assign = append(m.Assign, &cleanupv1.Assign{
			Column: a.Column, Value: a.Value, ValueFromKey: a.ValueFromKey,
		})
	}
	return m
}

func describedPolicy(d runs.DescribedPolicy) *cleanupv1.Policy {
	m := policyMessage(d.Policy)
	m.Warnings = messages(d.Warnings)
	return m
}
