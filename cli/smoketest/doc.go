// Package smoketest has the command dew smoke. Package smoke runs the tests.
package smoketest
