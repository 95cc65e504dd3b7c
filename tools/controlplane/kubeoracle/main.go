// kubeoracle answers where kube-scheduler's own plug-ins would let a pod be: a snapshot in, one JSON object a line on
// stdin; what each plug-in says out, one JSON object a line on stdout. It decides nothing, and keeps nothing between lines.
//
// The plug-ins are those of the default profile without DynamicResources, which needs a claim manager: its allocator is
// asked by itself (devices.go).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	fwkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// question is one snapshot: what there is, and the pod that is to be placed.
type question struct {
	Nodes      []*v1.Node                  `json:"nodes"`
	Pods       []*v1.Pod                   `json:"pods"`
	Namespaces []*v1.Namespace             `json:"namespaces"`
	Claims     []*v1.PersistentVolumeClaim `json:"claims"`
	Volumes    []*v1.PersistentVolume      `json:"volumes"`
	Classes    []*storagev1.StorageClass   `json:"classes"`
	CSINodes   []*storagev1.CSINode        `json:"csiNodes"`
	// What drivers have attached to nodes.
	Attachments []*storagev1.VolumeAttachment `json:"attachments"`
	// What an administrator asks of the nodes of all pods.
	AddedAffinity *v1.NodeAffinity `json:"addedAffinity"`
	Pod           *v1.Pod          `json:"pod"`
	Scores        bool             `json:"scores"`
	// Asks for devices instead, which needs neither pods nor a pod.
	Devices *devicesQuestion `json:"devices"`
}

// reason is what the first plug-in that is against it says.
type reason struct {
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
	// Whether taking pods away can never help.
	Unresolvable bool `json:"unresolvable,omitempty"`
}

// answer has every node in Feasible or in Why. Pre: what is said before any node was looked at, which is about all.
type answer struct {
	Pre      *reason                     `json:"pre,omitempty"`
	Feasible []string                    `json:"feasible"`
	Why      map[string]reason           `json:"why"`
	Scores   map[string]map[string]int64 `json:"scores,omitempty"`
	Error    string                      `json:"error,omitempty"`
}

// current is the snapshot that the plug-ins see: they are made once and keep what they are given.
type current struct{ fwk.SharedLister }

type oracle struct {
	profile  *config.KubeSchedulerProfile
	snapshot *current
	factory  informers.SharedInformerFactory
	plugins  framework.Framework
}

func main() {
	klog.SetLogger(klog.Background().V(0))
	klog.LogToStderr(false)
	metrics.Register()
	made, err := newOracle(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<28)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	written := json.NewEncoder(out)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			// An empty line asks for what was said so far.
			out.Flush()
			continue
		}
		if err := written.Encode(made.ask(lines.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newOracle(ctx context.Context) (*oracle, error) {
	found, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := found.Profiles[0]
	var kept []config.Plugin
	for _, plugin := range profile.Plugins.MultiPoint.Enabled {
		if plugin.Name != "DynamicResources" {
			kept = append(kept, plugin)
		}
	}
	profile.Plugins.MultiPoint.Enabled = kept
	made := &oracle{profile: &profile, snapshot: &current{cache.NewEmptySnapshot()}}
	made.factory = informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)
	made.plugins, err = made.framework(ctx, made.factory, fake.NewSimpleClientset())
	return made, err
}

func (o *oracle) framework(ctx context.Context, factory informers.SharedInformerFactory, client *fake.Clientset) (framework.Framework, error) {
	return o.frameworkOf(ctx, o.profile, factory, client)
}

func (o *oracle) frameworkOf(ctx context.Context, profile *config.KubeSchedulerProfile, factory informers.SharedInformerFactory, client *fake.Clientset) (framework.Framework, error) {
	return fwkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
		fwkruntime.WithClientSet(client),
		fwkruntime.WithInformerFactory(factory),
		fwkruntime.WithSnapshotSharedLister(o.snapshot),
		fwkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		fwkruntime.WithParallelism(1))
}

func (o *oracle) ask(line []byte) answer {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if asked.Devices != nil {
		return allocate(ctx, asked.Nodes, asked.Devices)
	}
	made, err := o.pluginsFor(ctx, &asked)
	if err != nil {
		return answer{Error: err.Error()}
	}
	snapshot := cache.NewSnapshot(asked.Pods, asked.Nodes)
	o.snapshot.SharedLister = snapshot
	return judge(ctx, made, snapshot, &asked)
}

// pluginsFor returns plug-ins that see the objects that are neither nodes nor pods. Plug-ins for volumes keep caches
// that are fed by informers, so these are made again for each snapshot with such objects.
func (o *oracle) pluginsFor(ctx context.Context, asked *question) (framework.Framework, error) {
	if len(asked.Claims)+len(asked.Volumes)+len(asked.Classes)+len(asked.CSINodes)+len(asked.Attachments) == 0 && asked.AddedAffinity == nil {
		var namespaces []any
		for _, each := range asked.Namespaces {
			namespaces = append(namespaces, each)
		}
		return o.plugins, o.factory.Core().V1().Namespaces().Informer().GetIndexer().Replace(namespaces, "1")
	}
	client := fake.NewSimpleClientset(objects(asked)...)
	factory := informers.NewSharedInformerFactory(client, 0)
	made, err := o.frameworkOf(ctx, o.profileWith(asked.AddedAffinity), factory, client)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return made, nil
}

func (o *oracle) profileWith(added *v1.NodeAffinity) *config.KubeSchedulerProfile {
	if added == nil {
		return o.profile
	}
	profile := o.profile.DeepCopy()
	for _, each := range profile.PluginConfig {
		if args, ok := each.Args.(*config.NodeAffinityArgs); ok {
			args.AddedAffinity = added
		}
	}
	return profile
}

func objects(asked *question) []runtime.Object {
	var all []runtime.Object
	for _, each := range asked.Namespaces {
		all = append(all, each)
	}
	for _, each := range asked.Claims {
		all = append(all, each)
	}
	for _, each := range asked.Volumes {
		all = append(all, each)
	}
	for _, each := range asked.Classes {
		all = append(all, each)
	}
	for _, each := range asked.CSINodes {
		all = append(all, each)
	}
	for _, each := range asked.Attachments {
		all = append(all, each)
	}
	return all
}

func judge(ctx context.Context, made framework.Framework, snapshot *cache.Snapshot, asked *question) answer {
	said := answer{Feasible: []string{}, Why: map[string]reason{}}
	state := framework.NewCycleState()
	pre, status, _ := made.RunPreFilterPlugins(ctx, state, asked.Pod)
	if !status.IsSuccess() && !status.IsRejected() {
		said.Error = status.Message()
		return said
	}
	if !status.IsSuccess() {
		before := because(status)
		said.Pre = &before
		return said
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		said.Error = err.Error()
		return said
	}
	var feasible []fwk.NodeInfo
	for _, node := range nodes {
		name := node.Node().Name
		if !pre.AllNodes() && !pre.NodeNames.Has(name) {
			said.Why[name] = reason{Plugin: "PreFilter", Unresolvable: true}
			continue
		}
		status := made.RunFilterPlugins(ctx, state, asked.Pod, node)
		switch {
		case status.IsSuccess():
			feasible = append(feasible, node)
			said.Feasible = append(said.Feasible, name)
		case status.IsRejected():
			said.Why[name] = because(status)
		default:
			said.Error = status.Message()
			return said
		}
	}
	if asked.Scores && len(feasible) > 0 {
		said.score(ctx, made, state, asked.Pod, feasible)
	}
	return said
}

func because(status *fwk.Status) reason {
	return reason{
		Plugin:       status.Plugin(),
		Reasons:      status.Reasons(),
		Unresolvable: status.Code() == fwk.UnschedulableAndUnresolvable,
	}
}

func (said *answer) score(ctx context.Context, made framework.Framework, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) {
	if status := made.RunPreScorePlugins(ctx, state, pod, nodes); !status.IsSuccess() {
		said.Error = status.Message()
		return
	}
	scores, status := made.RunScorePlugins(ctx, state, pod, nodes)
	if !status.IsSuccess() {
		said.Error = status.Message()
		return
	}
	said.Scores = map[string]map[string]int64{}
	for _, node := range scores {
		by := map[string]int64{}
		for _, each := range node.Scores {
			by[each.Name] = each.Score
		}
		said.Scores[node.Name] = by
	}
}
