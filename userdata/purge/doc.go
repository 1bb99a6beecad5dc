// Package purge has the rules of purges, which say which process instances that ended long ago are deleted. It
// stores the rules in the service's own database, and finds what matches them in the Forms database with package
// forms. Package userdata makes tasks of runs from the rules, and checks again whether a process instance matches
// before package erasure deletes it.
package purge
