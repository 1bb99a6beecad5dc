// Package erasure carries an erasure out: it erases process instances and orphan tasks, in the Forms database alone or
// by the Forms server, and then their documents. It needs a claimed erasure (package claim) and deletes rows with
// package removal, files with package gds; userdata calls it for requests of users and for purges.
package erasure
