package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The fields of Kubernetes that the manifest uses. The decoder refuses other fields, such as misspelt ones.
type (
	meta struct {
		Name   string
		Labels map[string]string
	}
	probe struct {
		HTTPGet struct {
			Path, Port string
		} `yaml:"httpGet"`
		PeriodSeconds    int `yaml:"periodSeconds"`
		TimeoutSeconds   int `yaml:"timeoutSeconds"`
		FailureThreshold int `yaml:"failureThreshold"`
	}
	configMap struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Data       map[string]string
	}
	deployment struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Spec       struct {
			Replicas int
			Strategy struct{ Type string }
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			Template struct {
				Metadata meta
				Spec     pod
			}
		}
	}
	pod struct {
		AutomountServiceAccountToken  *bool `yaml:"automountServiceAccountToken"`
		TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			RunAsNonRoot   bool `yaml:"runAsNonRoot"`
			RunAsUser      int  `yaml:"runAsUser"`
			RunAsGroup     int  `yaml:"runAsGroup"`
			FSGroup        int  `yaml:"fsGroup"`
			SeccompProfile struct {
				Type string
			} `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		Containers []struct {
			Name, Image string
			Args        []string
			Env         []struct{ Name, Value string }
			Ports       []struct {
				Name          string
				ContainerPort int `yaml:"containerPort"`
			}
			StartupProbe    probe `yaml:"startupProbe"`
			LivenessProbe   probe `yaml:"livenessProbe"`
			ReadinessProbe  probe `yaml:"readinessProbe"`
			Resources       struct{ Requests, Limits map[string]string }
			SecurityContext struct {
				AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
				ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
				Capabilities             struct{ Drop []string }
			} `yaml:"securityContext"`
			VolumeMounts []struct {
				Name      string
				MountPath string `yaml:"mountPath"`
				ReadOnly  bool   `yaml:"readOnly"`
			} `yaml:"volumeMounts"`
		}
		Volumes []struct {
			Name      string
			ConfigMap struct{ Name string } `yaml:"configMap"`
			Secret    struct {
				SecretName  string `yaml:"secretName"`
				DefaultMode int    `yaml:"defaultMode"`
			}
			EmptyDir map[string]string `yaml:"emptyDir"`
		}
	}
)

// decoder returns a decoder for a file of contrib. It refuses fields that the type does not have.
func decoder(t *testing.T, name string) *yaml.Decoder {
	t.Helper()
	text, err := os.ReadFile("../contrib/" + name)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d
}

func TestKubernetes(t *testing.T) {
	var config configMap
	var deployed deployment
	d := decoder(t, "kubernetes.yaml")
	if err := d.Decode(&config); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(&deployed); err != nil {
		t.Fatal(err)
	}
	if config.APIVersion != "v1" || config.Kind != "ConfigMap" || deployed.APIVersion != "apps/v1" || deployed.Kind != "Deployment" {
		t.Errorf("%s %s, %s %s", config.APIVersion, config.Kind, deployed.APIVersion, deployed.Kind)
	}
	for key, value := range deployed.Spec.Selector.MatchLabels {
		if deployed.Spec.Template.Metadata.Labels[key] != value {
			t.Errorf("the selector's %s=%s is no label of the pods", key, value)
		}
	}
	if deployed.Spec.Strategy.Type != "Recreate" {
		t.Error("a new pod and an old pod with other settings would wait for each other")
	}
	p := deployed.Spec.Template.Spec
	if p.SecurityContext.RunAsUser != user || p.SecurityContext.FSGroup != user {
		t.Errorf("it runs as %d, the image as %d", p.SecurityContext.RunAsUser, user)
	}
	if len(p.Containers) != 1 {
		t.Fatalf("%d containers", len(p.Containers))
	}
	c := p.Containers[0]
	var mounted, volumes []string
	for _, m := range c.VolumeMounts {
		mounted = append(mounted, m.Name)
	}
	for _, v := range p.Volumes {
		volumes = append(volumes, v.Name)
		if v.Secret.SecretName != "" && v.Secret.DefaultMode != 0o440 {
			t.Errorf("the secret %s has mode %o: serve warns of a file that every user can read", v.Name, v.Secret.DefaultMode)
		}
	}
	slices.Sort(mounted)
	slices.Sort(volumes)
	if !slices.Equal(mounted, volumes) {
		t.Errorf("volumes %v, mounted %v", volumes, mounted)
	}
	for _, p := range []probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p.HTTPGet.Port != c.Ports[0].Name || p.HTTPGet.Path != "/livez" && p.HTTPGet.Path != "/readyz" {
			t.Errorf("probe of %s at %s", p.HTTPGet.Path, p.HTTPGet.Port)
		}
	}
	if !strings.Contains(config.Data["ledgerd.toml"], `listen = ":7373"`) {
		t.Error("the config does not listen on the port of the probes")
	}
}

// A newer image starts on an older ledger: it migrates the ledger.
func TestImagesMigrate(t *testing.T) {
	for _, name := range []string{"compose.yaml", "kubernetes.yaml"} {
		text, err := os.ReadFile("../contrib/" + name)
		if err != nil || !bytes.Contains(text, []byte("[serve, --migrate")) {
			t.Errorf("%s: serve does not migrate: %v", name, err)
		}
	}
}

// The scripts of the packages: an upgrade does not fail if the service does not start, a removal stops all processes,
// and apk runs the same script after an upgrade as deb and rpm.
func TestScripts(t *testing.T) {
	for name, want := range map[string]string{
		"postinstall.sh": "systemctl try-restart ledgerd.service ||",
		"preremove.sh":   "systemctl stop ledgerd-drain.service\n",
		"nfpm.yaml":      "postupgrade: packaging/postinstall.sh\n",
	} {
		text, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v", name, want, err)
		}
	}
}

func TestCompose(t *testing.T) {
	type service struct {
		Image, Restart  string
		Command         []string
		PullPolicy      string   `yaml:"pull_policy"`
		StopGracePeriod string   `yaml:"stop_grace_period"`
		ReadOnly        bool     `yaml:"read_only"`
		CapDrop         []string `yaml:"cap_drop"`
		SecurityOpt     []string `yaml:"security_opt"`
		Tmpfs, Secrets  []string
		Environment     map[string]string
		Volumes         []string
		DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
		Healthcheck     struct {
			Test     []string
			Interval string
			Retries  int
		}
	}
	var file struct {
		Name     string
		Services map[string]service
		Volumes  map[string]map[string]string
		Secrets  map[string]struct{ File string }
	}
	if err := decoder(t, "compose.yaml").Decode(&file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != 2 {
		t.Errorf("%d services", len(file.Services))
	}
	for name, s := range file.Services {
		for _, secret := range s.Secrets {
			if file.Secrets[secret].File == "" {
				t.Errorf("%s: no secret %s", name, secret)
			}
		}
		for needed := range s.DependsOn {
			if _, there := file.Services[needed]; !there {
				t.Errorf("%s depends on %s, and that is no service", name, needed)
			}
		}
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, there := file.Volumes[from]; !there && !strings.HasPrefix(from, "./") {
				t.Errorf("%s: no volume %s", name, from)
			}
		}
	}
}

// systemd sets no limit for the start of the service, since it must not interrupt a migration. The daemon itself ends
// after two minutes without its database.
func TestServiceStarts(t *testing.T) {
	text, err := os.ReadFile("../contrib/systemd/ledgerd.service")
	if err != nil || !bytes.Contains(text, []byte("\nTimeoutStartSec=infinity\n")) {
		t.Errorf("%s %v", text, err)
	}
}
