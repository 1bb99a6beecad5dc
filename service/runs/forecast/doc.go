// Package forecast says whether runs keep up. It combines what package tasks/insight expects to become obsolete
// with how fast earlier runs were, and what stopped them.
package forecast
