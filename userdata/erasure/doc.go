// Package erasure carries out an erasure: it erases process instances and orphan tasks, either directly in the Forms
// database or through the Forms server, and then their documents. It needs a claimed erasure (package claim), and
// deletes rows with package removal and files with package gds. Package userdata calls it for requests of users and
// for purges.
package erasure
