// Package record stands between upstream's table tests and the plug-ins that they call: it writes down what a plug-in is
// asked and what it says, a JSON object a line, into PACKAGE.jsonl of the folder that MOORAGE_HARVEST names. Upstream's
// tests compare what is said with what they want, so in a run that passes both are the same.
//
// Nothing runs in parallel in these tests, so that the row that was begun last is the one that a call belongs to.
package record

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// placed is a node and the pods on it. An object is left as Go has it: what the API server would have filled in is missing.
type placed struct {
	Node *v1.Node  `json:"node"`
	Pods []*v1.Pod `json:"pods"`
}

// call is one line. Of a row with several pods or several runs each PreFilter or PreScore begins a question.
type call struct {
	Test    string           `json:"test"`
	Row     int              `json:"row"`
	Name    string           `json:"name"`
	Options map[string]any   `json:"options,omitempty"`
	Method  string           `json:"method"`
	Pod     *v1.Pod          `json:"pod,omitempty"`
	World   []placed         `json:"world,omitempty"`
	Objects map[string][]any `json:"objects,omitempty"`
	On      *placed          `json:"on,omitempty"`
	Code    string           `json:"code,omitempty"`
	Reasons []string         `json:"reasons,omitempty"`
	Names   []string         `json:"names,omitempty"`
	Score   *int64           `json:"score,omitempty"`
	Scores  map[string]int64 `json:"scores,omitempty"`
}

var (
	current call
	out     *json.Encoder
	// Fields of rows that hold arguments or features of a plug-in.
	isArgument = map[string]bool{"args": true, "fts": true}
)

// Row begins a row of the table of a test.
func Row(test string, row any) {
	current = call{Test: test, Row: current.Row + 1, Options: map[string]any{}}
	given := reflect.Indirect(reflect.ValueOf(row))
	if given.Kind() != reflect.Struct {
		return
	}
	// A copy has an address, so that fields that are not exported can be read.
	value := reflect.New(given.Type()).Elem()
	value.Set(given)
	for index := range value.NumField() {
		note(value.Type().Field(index).Name, value.Field(index))
	}
}

// note keeps what of a row is a plain value, or an argument of the plug-in; objects come with the calls.
func note(name string, field reflect.Value) {
	switch field.Kind() {
	case reflect.String:
		if name == "name" || name == "desc" || name == "test" {
			current.Name = field.String()
		}
		current.Options[name] = field.String()
	case reflect.Bool:
		current.Options[name] = field.Bool()
	case reflect.Int, reflect.Int32, reflect.Int64:
		current.Options[name] = field.Int()
	case reflect.Struct:
		if isArgument[name] {
			current.Options[name] = reachable(field).Interface()
		}
	case reflect.Pointer:
		if isArgument[name] && !field.IsNil() {
			current.Options[name] = reachable(field).Interface()
		}
	}
}

// PreFilter asks a plug-in, and writes down what there is beside what it says.
func PreFilter(plugin interface {
	PreFilter(context.Context, fwk.CycleState, *v1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status)
}, ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	made := question("PreFilter", plugin, pod, nodes)
	result, status := plugin.PreFilter(ctx, state, pod, nodes)
	if result != nil && result.NodeNames != nil {
		made.Names = result.NodeNames.UnsortedList()
	}
	made.say(status)
	return result, status
}

// Filter asks a plug-in of one node.
func Filter(plugin interface {
	Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status
}, ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	made := question("Filter", plugin, pod, nil)
	made.On = place(node)
	status := plugin.Filter(ctx, state, pod, node)
	made.say(status)
	return status
}

// PreScore asks a plug-in before it gives points.
func PreScore(plugin interface {
	PreScore(context.Context, fwk.CycleState, *v1.Pod, []fwk.NodeInfo) *fwk.Status
}, ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	// Those that don't fit are in the plug-in's snapshot only, and in some tests pods as well.
	made := question("PreScore", plugin, pod, nil)
	if len(made.World) == 0 {
		made.put(nodes)
	}
	for _, each := range nodes {
		made.Names = append(made.Names, each.Node().Name)
	}
	status := plugin.PreScore(ctx, state, pod, nodes)
	made.say(status)
	return status
}

// Score asks a plug-in for the points of one node.
func Score(plugin interface {
	Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status)
}, ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	made := question("Score", plugin, pod, nil)
	made.On = place(node)
	score, status := plugin.Score(ctx, state, pod, node)
	made.Score = &score
	made.say(status)
	return score, status
}

// NormalizeScore asks a plug-in to bring the points of all nodes onto one scale.
func NormalizeScore(plugin interface {
	NormalizeScore(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeScoreList) *fwk.Status
}, ctx context.Context, state fwk.CycleState, pod *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	made := question("NormalizeScore", plugin, pod, nil)
	status := plugin.NormalizeScore(ctx, state, pod, scores)
	made.Scores = map[string]int64{}
	for _, each := range scores {
		made.Scores[each.Name] = each.Score
	}
	made.say(status)
	return status
}

func question(method string, plugin any, pod *v1.Pod, nodes []fwk.NodeInfo) *call {
	made := current
	made.Method, made.Pod, made.Objects = method, pod.DeepCopy(), map[string][]any{}
	made.put(nodes)
	made.look(reflect.ValueOf(plugin), 4)
	return &made
}

func (made *call) put(nodes []fwk.NodeInfo) {
	for _, each := range nodes {
		made.World = append(made.World, *place(each))
	}
}

func place(node fwk.NodeInfo) *placed {
	made := &placed{Node: node.Node().DeepCopy()}
	for _, each := range node.GetPods() {
		made.Pods = append(made.Pods, each.GetPod().DeepCopy())
	}
	return made
}

func (made *call) say(status *fwk.Status) {
	made.Code = status.Code().String()
	if status != nil {
		made.Reasons = status.Reasons()
	}
	if out == nil {
		// go test runs a package's tests in the folder of the package.
		folder, err := os.Getwd()
		if err != nil {
			panic(err)
		}
		file, err := os.Create(filepath.Join(os.Getenv("MOORAGE_HARVEST"), filepath.Base(folder)+".jsonl"))
		if err != nil {
			panic(err)
		}
		out = json.NewEncoder(file)
	}
	if err := out.Encode(made); err != nil {
		panic(err)
	}
}
