// Package sweep deletes stale documents: those whose sessions all name a task or form data that does not exist. The
// documents are in the Forms database or in the folder of the document storage. It needs a claimed erasure (package
// claim), and package removal or gds to delete. Package userdata calls it to sweep and to preview a sweep.
package sweep
