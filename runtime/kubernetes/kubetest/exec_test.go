package kubetest

import "testing"

func TestExitCodeOfStatus(t *testing.T) {
	for name, test := range map[string]struct {
		status string
		want   int
		fails  bool
	}{
		"success":         {status: `{"status":"Success"}`},
		"exit code":       {status: `{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`, want: 7},
		"no exit code":    {status: `{"status":"Failure","message":"container not found"}`, fails: true},
		"wrong exit code": {status: `{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}`, fails: true},
		"no JSON":         {status: `container not found`, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := exitCode([]byte(test.status))
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("exit code = %d, %v, want %d", got, err, test.want)
			}
		})
	}
}
