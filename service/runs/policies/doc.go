// Package policies stores the policies of an installation in the service's own schema. Package tasks/policy defines
// what a policy is and which task it becomes.
package policies
