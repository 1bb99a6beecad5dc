package transport

import (
	"fmt"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	cleanupv1 "github.com/cleanupd/cleanupd/gen/cleanup/v1"
	"github.com/cleanupd/cleanupd/service/access"
)

// rule says which role a call of an RPC needs, and whether it is audited.
type rule struct {
	role    access.Role // the lowest role that may call it
	dryRun  access.Role // the lowest role for a dry run; if Nobody, the same as role
	audited bool
	// someAudited means that the handler decides which calls are audited (audit.Note, audit.Insist).
	someAudited bool
}

// rules has the rule of each RPC by its full name.
var rules = map[string]rule{
	cleanupv1.CleanupService_RunCleanup_FullMethodName: {role: access.Operator, dryRun: access.Viewer, audited: true},
	cleanupv1.CleanupService_WatchRun_FullMethodName:   {role: access.Viewer},
	cleanupv1.CleanupService_GetRun_FullMethodName:     {role: access.Viewer},
	cleanupv1.CleanupService_ListRuns_FullMethodName:   {role: access.Viewer},
	// Viewers may cancel their own dry runs; see mayCancel.
	cleanupv1.CleanupService_CancelRun_FullMethodName:            {role: access.Viewer, audited: true},
	cleanupv1.CleanupService_SetPace_FullMethodName:              {role: access.Operator, audited: true},
	cleanupv1.CleanupService_PauseRun_FullMethodName:             {role: access.Operator, audited: true},
	cleanupv1.CleanupService_ResumeRun_FullMethodName:            {role: access.Operator, audited: true},
	cleanupv1.CleanupService_ListTasks_FullMethodName:            {role: access.Viewer},
	cleanupv1.InsightService_ListTables_FullMethodName:           {role: access.Viewer},
	cleanupv1.CleanupService_GetOptions_FullMethodName:           {role: access.Viewer},
	cleanupv1.CleanupService_SetOptions_FullMethodName:           {role: access.Admin, audited: true},
	cleanupv1.CleanupService_GetSchedule_FullMethodName:          {role: access.Viewer},
	cleanupv1.CleanupService_SetSchedule_FullMethodName:          {role: access.Admin, audited: true},
	cleanupv1.InsightService_ListRemoteDeliveries_FullMethodName: {role: access.Viewer},
	cleanupv1.InsightService_ExplainTask_FullMethodName:          {role: access.Viewer},
	// Calls with a text as key are audited; see mayExplainByText.
	cleanupv1.InsightService_ExplainRow_FullMethodName:     {role: access.Viewer, someAudited: true},
	cleanupv1.GuardService_GetGuards_FullMethodName:        {role: access.Admin},
	cleanupv1.GuardService_SetGuards_FullMethodName:        {role: access.Admin, audited: true},
	cleanupv1.GuardService_CreateHold_FullMethodName:       {role: access.Admin, audited: true},
	cleanupv1.GuardService_ListHolds_FullMethodName:        {role: access.Admin},
	cleanupv1.GuardService_ReleaseHold_FullMethodName:      {role: access.Admin, audited: true},
	cleanupv1.PolicyService_ListPolicies_FullMethodName:    {role: access.Viewer},
	cleanupv1.PolicyService_GetPolicy_FullMethodName:       {role: access.Viewer},
	cleanupv1.PolicyService_SetPolicy_FullMethodName:       {role: access.Admin, audited: true},
	cleanupv1.PolicyService_DeletePolicy_FullMethodName:    {role: access.Admin, audited: true},
	cleanupv1.PolicyService_GetPolicyGrants_FullMethodName: {role: access.Admin},
	cleanupv1.InsightService_GetForecast_FullMethodName:    {role: access.Viewer},
	cleanupv1.ServerService_WhoAmI_FullMethodName:          {role: access.Viewer},
	cleanupv1.ServerService_GetServer_FullMethodName:       {role: access.Viewer},
	cleanupv1.ServerService_ListAudit_FullMethodName:       {role: access.Admin},
	cleanupv1.RestoreService_ListTrash_FullMethodName:      {role: access.Viewer},
	cleanupv1.RestoreService_RestoreTrash_FullMethodName:   {role: access.Admin, audited: true},
	cleanupv1.RestoreService_PurgeTrash_FullMethodName:     {role: access.Admin, audited: true},

	cleanupv1.UserDataService_FindUserData_FullMethodName:   {role: access.Admin, audited: true},
	cleanupv1.UserDataService_EraseUserData_FullMethodName:  {role: access.Admin, audited: true},
	cleanupv1.UserDataService_SweepDocuments_FullMethodName: {role: access.Admin, audited: true},
	cleanupv1.UserDataService_VerifyErasure_FullMethodName:  {role: access.Admin, audited: true},
	cleanupv1.UserDataService_GetReceipt_FullMethodName:     {role: access.Admin},
	cleanupv1.UserDataService_ListReceipts_FullMethodName:   {role: access.Admin},

	cleanupv1.UserDataService_ListFormsPurges_FullMethodName:  {role: access.Admin},
	cleanupv1.UserDataService_SetFormsPurge_FullMethodName:    {role: access.Admin, audited: true},
	cleanupv1.UserDataService_DeleteFormsPurge_FullMethodName: {role: access.Admin, audited: true},

	healthv1.Health_Check_FullMethodName: {},
	healthv1.Health_List_FullMethodName:  {},
	healthv1.Health_Watch_FullMethodName: {},

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {role: access.Viewer},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {role: access.Viewer},
}

// checkRules fails if a server serves an RPC without a rule.
func checkRules(server *grpc.Server) error {
	for name, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			full := "/" + name + "/" + method.Name
			if _, ok := rules[full]; !ok {
				return fmt.Errorf("no rule says who can call %s", full)
			}
		}
	}
	return nil
}

// needs returns the lowest role that may make the call. req is nil if the request has not arrived yet.
func (r rule) needs(req any) access.Role {
	if r.dryRun == access.Nobody {
		return r.role
	}
	if run, ok := req.(*cleanupv1.RunCleanupRequest); ok && len(run.GetAcceptGuards()) > 0 {
		return access.Admin
	}
	dry, ok := req.(interface{ GetDryRun() bool })
	if req == nil || (ok && dry.GetDryRun()) {
		return r.dryRun
	}
	return r.role
}
