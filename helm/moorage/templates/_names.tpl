{{/* What is named the same in many places. */}}

{{- define "moorage.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: moorage
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: moorage
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Of a component's pods: (dict "root" $ "component" NAME). They never change. */}}
{{- define "moorage.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/*
An image: (dict "root" $ "name" NAME). Without a registry a node would pull it from the runtime's default registry, where
nobody of ours owns the name.
*/}}
{{- define "moorage.image" -}}
{{- $global := .root.Values.global -}}
{{- $registry := trimSuffix "/" $global.registry -}}
{{- if not $registry -}}
{{- fail "global.registry is not set, and Moorage publishes no images: build them (make images, docs/images.md), then either push them to a registry of yours and add --set global.registry=registry.example.com/team, or load them into every node (ctr --namespace k8s.io images import) and add --set global.registry=localhost" -}}
{{- end -}}
{{- $registry }}/{{ .name }}:{{ $global.tag | default .root.Chart.AppVersion }}
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
