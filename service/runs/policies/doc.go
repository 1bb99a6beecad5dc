// Package policies stores the policies of an installation, in the service's own schema. What a policy is, and which
// task it makes, is defined in package tasks/policy.
package policies
