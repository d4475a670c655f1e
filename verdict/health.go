package verdict

import (
	"fmt"
	"slices"
	"strings"
)

// failedCheck reports whether a health check failed.
func failedCheck(f Facts) bool { return f.First.Cause == Unhealthy || f.First.Cause == StartTimeout }

// httpStatus explains an http health check whose endpoint answered with another status
// than 200.
func httpStatus(f Facts) (Verdict, bool) {
	if !failedCheck(f) || f.Health.Type != "http" || f.Health.Status == 0 {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    f.First.Cause,
		Sentence: fmt.Sprintf("the health check of %s failed: GET %s answered %d", f.first(), f.Health.Endpoint, f.Health.Status),
		Evidence: []string{"an http health check passes only if the answer is 200"},
	}
	switch s := f.Health.Status; {
	case s == 401 || s == 403:
		v.Advice = "Set `health-check-http-endpoint` in the manifest to a path that answers 200 without a login"
	case s >= 500:
		v.Advice = "Fix the error that the app reports. To see its output: dew logs " + f.App + " --recent"
	default:
		v.Advice = "Set `health-check-http-endpoint` in the manifest to a path that answers 200"
	}
	return v, true
}

// wrongPort explains an app that listens on another port than $PORT.
func wrongPort(f Facts) (Verdict, bool) {
	ports := f.listeningPorts()
	if !failedCheck(f) || f.Health.Status != 0 || f.Port == 0 || len(ports) == 0 || slices.Contains(ports, f.Port) {
		return Verdict{}, false
	}
	return Verdict{
		Class:    f.First.Cause,
		Sentence: fmt.Sprintf("the app listens on %s, but it must listen on $PORT (%d)", portsText(ports), f.Port),
		Evidence: []string{fmt.Sprintf("no process of the instance listened on port %d", f.Port)},
		Advice:   "Read the port from the environment variable PORT",
	}, true
}

// loopbackOnly explains an app that listens on $PORT, but only for connections from
// inside the instance.
func loopbackOnly(f Facts) (Verdict, bool) {
	if !failedCheck(f) || f.Health.Status != 0 || f.Port == 0 {
		return Verdict{}, false
	}
	loopback := false
	for _, l := range f.Listening {
		if l.Port == f.Port && !l.Loopback {
			return Verdict{}, false
		}
		loopback = loopback || l.Port == f.Port
	}
	if !loopback {
		return Verdict{}, false
	}
	return Verdict{
		Class:    f.First.Cause,
		Sentence: fmt.Sprintf("the app listens on 127.0.0.1:%d, where neither the health check nor the router can connect", f.Port),
		Evidence: []string{fmt.Sprintf("port %d is open on the loopback address only", f.Port)},
		Advice:   fmt.Sprintf("Listen on 0.0.0.0:$PORT (0.0.0.0:%d)", f.Port),
	}, true
}

// httpSilent explains an http health check that got a connection and no answer.
func httpSilent(f Facts) (Verdict, bool) {
	if !failedCheck(f) || f.Health.Type != "http" || f.Health.Status != 0 || !slices.Contains(f.listeningPorts(), f.Port) || f.Port == 0 {
		return Verdict{}, false
	}
	return Verdict{
		Class:    f.First.Cause,
		Sentence: fmt.Sprintf("the health check of %s failed: GET %s got no answer in time", f.first(), f.Health.Endpoint),
		Evidence: []string{fmt.Sprintf("the app accepts connections on port %d", f.Port)},
		Advice:   "Make the endpoint answer faster, or set `health-check-invocation-timeout` in the manifest to more seconds",
	}, true
}

// notListening explains an app that runs and does not open its port in time.
func notListening(f Facts) (Verdict, bool) {
	if f.First.Cause != StartTimeout || f.Port == 0 || len(f.Listening) > 0 {
		return Verdict{}, false
	}
	v := Verdict{
		Class:    StartTimeout,
		Sentence: fmt.Sprintf("%s did not open port %d in time", f.first(), f.Port),
		Advice:   "The app must listen on 0.0.0.0:$PORT. To allow more time, set `timeout` in the manifest (or use -t SECONDS). For an app without a port, set `health-check-type: process`",
	}
	if f.Health.Timeout > 0 {
		v.Sentence = fmt.Sprintf("%s did not open port %d within %s", f.first(), f.Port, f.Health.Timeout)
	}
	if f.First.Detail != "" {
		v.Evidence = []string{f.First.Detail}
	}
	return v, true
}

// unhealthy explains the other failed health checks.
func unhealthy(f Facts) (Verdict, bool) {
	if !failedCheck(f) {
		return Verdict{}, false
	}
	v := Verdict{Class: f.First.Cause, Sentence: "the health check of " + f.first() + " failed"}
	if f.First.Cause == StartTimeout {
		v.Sentence = f.first() + " did not become healthy in time"
		v.Advice = "The app must listen on 0.0.0.0:$PORT. To allow more time, set `timeout` in the manifest (or use -t SECONDS)"
	}
	if f.First.Detail != "" {
		v.Sentence += ": " + quote(f.First.Detail)
	}
	if v.Advice == "" {
		v.Advice = "To see the output before it: dew logs " + f.App + " --recent"
	}
	return v, true
}

// listeningPorts returns the ports on which the app was listening, sorted.
func (f Facts) listeningPorts() []int {
	var ports []int
	for _, l := range f.Listening {
		if !slices.Contains(ports, l.Port) {
			ports = append(ports, l.Port)
		}
	}
	slices.Sort(ports)
	return ports
}

// maxPorts is how many ports a sentence names.
const maxPorts = 4

func portsText(ports []int) string {
	var s []string
	for _, p := range ports[:min(len(ports), maxPorts)] {
		s = append(s, fmt.Sprint(p))
	}
	text := "port "
	if len(ports) > 1 {
		text = "ports "
	}
	text += strings.Join(s, ", ")
	if len(ports) > maxPorts {
		text += ", …"
	}
	return text
}
