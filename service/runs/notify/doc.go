// Package notify sends notifications: it creates events from runs that ended and from missed times of the schedule,
// stores one for each target, and sends them by HTTPS or e-mail until the target accepts them or a day has passed. It
// needs packages store and instance. Manager calls Collect and Deliver periodically on every replica with targets;
// package serve parses the targets and calls Test.
package notify
