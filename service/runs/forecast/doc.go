// Package forecast says whether runs keep up: it combines what package tasks/forecast expects to become obsolete with
// how fast former runs were, and what stopped them.
package forecast
