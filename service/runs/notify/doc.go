// Package notify sends notifications. It creates events from runs that ended and from missed times of the schedule,
// stores one notification for each target, and sends it by HTTPS or e-mail until the target accepts it or a day has
// passed. It uses the packages store and instance. Manager calls Collect and Deliver periodically on every replica
// with targets; package serve parses the targets and calls Test.
package notify
