package droplet

import (
	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
	"github.com/dewrun/dew/store"
)

// The names that package api still uses for what is now in droplet/stack, droplet/pool and
// droplet/archive. "go fix -inline ./..." replaces them, except for the errors.

// ImageError is archive.Error.
//
//go:fix inline
type ImageError = archive.Error

// DebianSource is stack.DebianSource.
//
//go:fix inline
type DebianSource = stack.DebianSource

// ImageSource is stack.ImageSource.
//
//go:fix inline
type ImageSource = stack.ImageSource

// KeptStack is stack.Record.
//
//go:fix inline
type KeptStack = stack.Record

// RunConfig is stack.RunConfig.
//
//go:fix inline
type RunConfig = stack.RunConfig

// Stack is stack.Stack.
//
//go:fix inline
type Stack = stack.Stack

// StackAccess is stack.Access.
//
//go:fix inline
type StackAccess = stack.Access

// StackOptions is stack.Options.
//
//go:fix inline
type StackOptions = stack.Options

// StackSource is stack.Source.
//
//go:fix inline
type StackSource = stack.Source

// Stacks is stack.Stacks.
//
//go:fix inline
type Stacks = stack.Stacks

// DefaultStack is stack.Default.
//
//go:fix inline
const DefaultStack = stack.Default

// MaxStackUpload is stack.MaxUpload.
//
//go:fix inline
const MaxStackUpload = stack.MaxUpload

// StackHost is stack.KindHost.
//
//go:fix inline
const StackHost = stack.KindHost

// StackReady is stack.StateReady.
//
//go:fix inline
const StackReady = stack.StateReady

// The errors of stacks.
var (
	ErrStackBusy    = stack.ErrBusy
	ErrStackOwn     = stack.ErrOwn
	ErrStackRefused = stack.ErrRefused
	ErrStackState   = stack.ErrState
	ErrStackTaken   = stack.ErrTaken
)

// CheckImageRef is stack.CheckImageRef.
//
//go:fix inline
func CheckImageRef(ref string) error { return stack.CheckImageRef(ref) }

// CheckStack is stack.Check.
//
//go:fix inline
func CheckStack(name string) error { return stack.Check(name) }

// OpenStacks is stack.Open.
//
//go:fix inline
func OpenStacks(db *store.DB, o stack.Options) (*stack.Stacks, error) { return stack.Open(db, o) }

// StackGUID is stack.GUID.
//
//go:fix inline
func StackGUID(name string) string { return stack.GUID(name) }

// PackageError is pool.Error.
//
//go:fix inline
type PackageError = pool.Error

// Resource is pool.Resource.
//
//go:fix inline
type Resource = pool.Resource
