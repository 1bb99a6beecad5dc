// Package purge has the rules of purges: which process instances that ended long ago are deleted. It stores the rules
// in the service's own database and finds what matches them in the Forms database. It needs package forms; userdata
// makes tasks of runs from the rules, and package erasure asks again whether a process instance matches before deleting
// it.
package purge
