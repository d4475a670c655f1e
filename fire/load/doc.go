// Package load keeps the dewd of the fault suite busy, and notes what it was promised:
// the lines that apps printed, the writes that it acknowledged, the notifications that
// it accepted. The Ledger holds these notes. Package fire/check compares them with what
// dewd stores and shows.
package load
