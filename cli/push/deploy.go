package push

import (
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/cli/apps"
	"github.com/dewrun/dew/cli/console"
)

// checkStrategy reports flags that contradict --strategy.
func (o Options) checkStrategy() error {
	if o.Deploy.Gradual() && o.NoStart {
		return console.UsageError("--strategy and --no-start cannot be used together")
	}
	return o.Deploy.Check()
}

// scale sets the number and the size of instances from the flags.
func (o Options) scale(instances, memory, disk **int) error {
	for _, size := range []struct {
		flag, text string
		mb         **int
	}{{"-m", o.Memory, memory}, {"-k", o.Disk, disk}} {
		if size.text == "" {
			continue
		}
		n, err := app.ParseMB(size.text)
		if err != nil {
			return console.UsageError("%s: %w", size.flag, err)
		}
		*size.mb = &n
	}
	if o.Instances == nil {
		return nil
	}
	if *o.Instances < 0 {
		return console.UsageError("-i: %d is less than 0", *o.Instances)
	}
	*instances = o.Instances
	return nil
}

// logRate sets the log rate limit from the flag.
func (o Options) logRate(rate **int64) error {
	n, err := apps.ReadRate(o.LogRate)
	if err == nil && n != nil {
		bytes := int64(*n)
		*rate = &bytes
	}
	return err
}

// size is the instance count and the limits for a deployment.
func (o Options) size() (v3.DeploymentOptions, error) {
	var instances, memory, disk *int
	if err := o.scale(&instances, &memory, &disk); err != nil {
		return v3.DeploymentOptions{}, err
	}
	rate, err := apps.ReadRate(o.LogRate)
	number := func(n *int) *v3.Int {
		if n == nil {
			return nil
		}
		v := v3.Int(*n)
		return &v
	}
	return v3.DeploymentOptions{WebInstances: number(instances), MemoryInMB: number(memory), DiskInMB: number(disk), LogRateLimit: rate}, err
}
