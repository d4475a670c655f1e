package v3

// StackActive is the state of a stack that apps may use.
const StackActive = "ACTIVE"

// Stack is a root file system that droplets run on.
type Stack struct {
	GUID        string   `json:"guid"`
	CreatedAt   Time     `json:"created_at"`
	UpdatedAt   Time     `json:"updated_at"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	State       string   `json:"state"`
	StateReason *string  `json:"state_reason"`
	RunRootFS   string   `json:"run_rootfs_image"`
	BuildRootFS string   `json:"build_rootfs_image"`
	Default     bool     `json:"default"`
	Metadata    Metadata `json:"metadata"`
	Links       Links    `json:"links"`
}
