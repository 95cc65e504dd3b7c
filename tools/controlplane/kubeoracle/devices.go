package main

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	resourcebeta "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/dynamic-resource-allocation/structured"
)

// devicesQuestion asks kube-scheduler's allocator, with the features of a default 1.36, for devices of every node. With
// rules, those of a 1.36 whose feature gate DRADeviceTaintRules is on.
type devicesQuestion struct {
	Slices  []*resourceapi.ResourceSlice    `json:"slices"`
	Classes []*resourceapi.DeviceClass      `json:"classes"`
	Rules   []*resourcebeta.DeviceTaintRule `json:"rules"`
	// Claims that have their devices, and those that are to get some.
	Allocated []*resourceapi.ResourceClaim `json:"allocated"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
}

type deviceClasses map[string]*resourceapi.DeviceClass

func (c deviceClasses) List() ([]*resourceapi.DeviceClass, error) {
	var all []*resourceapi.DeviceClass
	for _, each := range c {
		all = append(all, each)
	}
	return all, nil
}

func (c deviceClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	if found, ok := c[name]; ok {
		return found, nil
	}
	return nil, fmt.Errorf("device class %s not found", name)
}

// inUse reads what claims have, as kube-scheduler's claim tracker does: admin access takes nothing.
func inUse(claims []*resourceapi.ResourceClaim) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.AdminAccess != nil && *result.AdminAccess {
				continue
			}
			id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
			if result.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
			if result.ConsumedCapacity != nil {
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			}
		}
	}
	return state
}

// tainted returns the slices with the taints of rules, as the tracker of kube-scheduler's plug-in hands them on.
func tainted(ctx context.Context, asked *devicesQuestion) ([]*resourceapi.ResourceSlice, error) {
	if len(asked.Rules) == 0 {
		return asked.Slices, nil
	}
	var objects []runtime.Object
	for _, each := range asked.Slices {
		objects = append(objects, each)
	}
	for _, each := range asked.Rules {
		objects = append(objects, each)
	}
	factory := informers.NewSharedInformerFactory(fake.NewSimpleClientset(objects...), 0)
	ctx, cancel := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer cancel()
	found, err := tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules:   true,
		EnableConsumableCapacity: true,
		SliceInformer:            factory.Resource().V1().ResourceSlices(),
		TaintInformer:            factory.Resource().V1beta2().DeviceTaintRules(),
		ClassInformer:            factory.Resource().V1().DeviceClasses(),
	})
	if err != nil {
		return nil, err
	}
	defer found.Stop()
	factory.Start(ctx.Done())
	<-found.HasSyncedChecker().Done()
	return found.ListPatchedResourceSlices()
}

// allocate answers with the nodes that have devices, and with what the allocator says of the others. An error of one
// node is a reason: kube-scheduler ends its attempt there, so that the other nodes are as if they had not been asked.
func allocate(ctx context.Context, nodes []*v1.Node, asked *devicesQuestion) answer {
	said := answer{Feasible: []string{}, Why: map[string]reason{}}
	classes := deviceClasses{}
	for _, each := range asked.Classes {
		classes[each.Name] = each
	}
	features := structured.Features{
		AdminAccess:            true,
		PrioritizedList:        true,
		PartitionableDevices:   true,
		DeviceTaints:           true,
		DeviceBindingAndStatus: true,
		ConsumableCapacity:     true,
	}
	cache := cel.NewCache(64, cel.Features{EnableConsumableCapacity: true})
	slices, err := tainted(ctx, asked)
	if err != nil {
		said.Error = err.Error()
		return said
	}
	allocator, err := structured.NewAllocator(ctx, features, inUse(asked.Allocated), classes, slices, cache)
	if err != nil {
		said.Error = err.Error()
		return said
	}
	for _, node := range nodes {
		found, err := allocator.Allocate(ctx, node, asked.Claims)
		switch {
		case err != nil && errors.Is(err, structured.ErrFailedAllocationOnNode):
			said.Why[node.Name] = reason{Plugin: "DynamicResources", Reasons: []string{err.Error()}}
		case err != nil:
			said.Why[node.Name] = reason{Plugin: "DynamicResources", Reasons: []string{err.Error()}, Unresolvable: true}
		case len(found) != len(asked.Claims):
			said.Why[node.Name] = reason{Plugin: "DynamicResources", Reasons: []string{"cannot allocate all claims"}}
		default:
			said.Feasible = append(said.Feasible, node.Name)
		}
	}
	return said
}
