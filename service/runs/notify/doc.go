// Package notify tells people what happened to runs: it makes events of the runs that ended and of the times of the
// schedule that were missed, stores one for each target, and sends them, by HTTPS or e-mail, until the target has
// accepted them or a day has passed. It needs packages store and instance. Manager calls Collect and Deliver again and
// again, on every replica with targets; package serve parses the targets and calls Test.
package notify
