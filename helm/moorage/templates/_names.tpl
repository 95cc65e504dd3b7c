{{/* What is named the same in many places. */}}

{{- define "moorage.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: moorage
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: moorage
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Of a component's pods: (dict "root" $ "component" NAME "pool" NODE-POOL). They never change. */}}
{{- define "moorage.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
moorage.dev/node-pool: {{ . | quote }}
{{- end }}
{{- end }}

{{/* What KAI's images are called: a values file of KAI's names them, and its tags, and ours are run all the same. */}}
{{- define "moorage.kaisImages" -}}
operator podgrouper podgroupcontroller binder resourcereservation scheduler queuecontroller admission nodescaleadjuster scalingpod numa-placement-exporter crd-upgrader
{{- end }}

{{/*
An image: (dict "root" $ "image" ITS-VALUES "ours" NAME). Without a registry a node would pull it from the runtime's default
registry, where nobody of ours owns the name; in KAI's there are none of ours.
*/}}
{{- define "moorage.image" -}}
{{- $global := .root.Values.global -}}
{{- $registry := trimSuffix "/" $global.registry -}}
{{- $how := "build Moorage's images (make images, docs/images.md), then either push them to a registry of yours and add --set global.registry=registry.example.com/team, or load them into every node (ctr --namespace k8s.io images import) and add --set global.registry=localhost" -}}
{{- if not $registry -}}
{{- fail (printf "global.registry is not set, and Moorage publishes no images: %s" $how) -}}
{{- end -}}
{{- if regexMatch "(^|/)(local|nvidia|kai-scheduler)/kai-scheduler$" $registry -}}
{{- fail (printf "global.registry=%s is KAI's, which has none of Moorage's images: %s" $registry $how) -}}
{{- end -}}
{{- $tag := $global.tag | default .root.Chart.AppVersion -}}
{{- if has .image.name (splitList " " (include "moorage.kaisImages" .)) -}}
{{- $registry }}/{{ .ours }}:{{ $tag }}
{{- else -}}
{{- $registry }}/{{ .image.name }}:{{ .image.tag | default $tag }}
{{- end -}}
{{- end }}

{{/* "true" if an object is there already that is not this release's: (dict "root" $ "object" OBJECT). */}}
{{- define "moorage.isTheirs" -}}
{{- $object := .object -}}
{{- $there := lookup $object.apiVersion $object.kind ($object.metadata.namespace | default "") $object.metadata.name -}}
{{- if $there -}}
{{- $annotations := $there.metadata.annotations | default dict -}}
{{- if ne (get $annotations "meta.helm.sh/release-name") .root.Release.Name -}}true{{- end -}}
{{- end -}}
{{- end }}
