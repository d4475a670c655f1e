package app

// Unscale takes back what the deployment itself changed of the web process.
func (d Deployment) Unscale(p *Process, to Release) {
	if p.Instances == d.Target {
		p.Instances = d.Original
	}
	if d.Options.MemoryMB != nil {
		p.MemoryMB = to.MemoryMB
	}
	if d.Options.DiskMB != nil {
		p.DiskMB = to.DiskMB
	}
	if d.Options.LogRate != nil {
		p.LogRate = to.LogRate
	}
	if d.Before != nil {
		p.Command = d.Before.Command
	}
}
