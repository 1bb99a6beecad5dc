// Package pipeline takes the tasks of a run one after another: it reads the environment, compiles the task, chooses
// its parents, passes the attempt to an Executor, and reports the outcome to the Journal. Package execute is the
// executor that deletes, and package dryrun the one that counts. Where the journal is stored, and who reads it, is
// not known here.
package pipeline
