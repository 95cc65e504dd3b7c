package record

import (
	"context"
	"reflect"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// look finds the objects that a plug-in can see, in its fields: in listers, in a client, in its snapshot.
func (made *call) look(value reflect.Value, depth int) {
	for value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface {
		if value.IsNil() {
			return
		}
		if made.take(value) {
			return
		}
		value = value.Elem()
	}
	if made.take(value) || value.Kind() != reflect.Struct || depth == 0 {
		return
	}
	if !value.CanAddr() {
		copied := reflect.New(value.Type()).Elem()
		copied.Set(value)
		value = copied
	}
	for index := range value.NumField() {
		made.look(reachable(value.Field(index)), depth-1)
	}
}

// take keeps what a field lists; false: it is nothing that lists objects.
func (made *call) take(value reflect.Value) bool {
	if !value.CanInterface() {
		return false
	}
	if of := reflect.ValueOf(value.Interface()); of.Kind() == reflect.Slice {
		return made.elements(of)
	}
	switch found := value.Interface().(type) {
	case fwk.SharedLister:
		nodes, err := found.NodeInfos().List()
		if err == nil && len(made.World) == 0 {
			for _, each := range nodes {
				made.World = append(made.World, *place(each))
			}
		}
	case clientset.Interface:
		made.served(found)
	case fwk.Handle:
		// What a plug-in reads of it is in its own fields.
	case corelisters.NamespaceLister:
		listed, err := found.List(labels.Everything())
		keep(made, "namespaces", listed, err)
	case corelisters.PersistentVolumeClaimLister:
		listed, err := found.List(labels.Everything())
		keep(made, "claims", listed, err)
	case corelisters.PersistentVolumeLister:
		listed, err := found.List(labels.Everything())
		keep(made, "volumes", listed, err)
	case storagelisters.StorageClassLister:
		listed, err := found.List(labels.Everything())
		keep(made, "classes", listed, err)
	case storagelisters.CSINodeLister:
		listed, err := found.List(labels.Everything())
		keep(made, "csiNodes", listed, err)
	case toolscache.Indexer:
		keep(made, "attachments", found.List(), nil)
	default:
		return false
	}
	return true
}

func (made *call) served(client clientset.Interface) {
	ctx, all := context.Background(), metav1.ListOptions{}
	if listed, err := client.CoreV1().PersistentVolumeClaims("").List(ctx, all); err == nil {
		keep(made, "claims", listed.Items, nil)
	}
	if listed, err := client.CoreV1().PersistentVolumes().List(ctx, all); err == nil {
		keep(made, "volumes", listed.Items, nil)
	}
	if listed, err := client.StorageV1().StorageClasses().List(ctx, all); err == nil {
		keep(made, "classes", listed.Items, nil)
	}
}

// elements keeps those of a lister that is a slice: upstream's fakes for tests can't be asked for all.
func (made *call) elements(value reflect.Value) bool {
	kinds := map[reflect.Type]string{
		reflect.TypeFor[v1.PersistentVolumeClaim](): "claims",
		reflect.TypeFor[v1.PersistentVolume]():      "volumes",
		reflect.TypeFor[storagev1.StorageClass]():   "classes",
		reflect.TypeFor[storagev1.CSINode]():        "csiNodes",
	}
	kind, known := kinds[value.Type().Elem()]
	if known && len(made.Objects[kind]) == 0 {
		for index := range value.Len() {
			made.Objects[kind] = append(made.Objects[kind], value.Index(index).Interface())
		}
	}
	return known
}

func keep[T any](made *call, kind string, listed []T, err error) {
	if err != nil || len(made.Objects[kind]) > 0 {
		return
	}
	for _, each := range listed {
		made.Objects[kind] = append(made.Objects[kind], each)
	}
}

// reachable is a field that may be read though it is not exported.
func reachable(field reflect.Value) reflect.Value {
	if field.CanInterface() {
		return field
	}
	if field.CanAddr() {
		return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
	}
	return field
}
