// Package smoketest has the command dew smoke, over package smoke.
package smoketest
