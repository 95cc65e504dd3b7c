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

{{/* An image: (dict "root" $ "name" NAME). */}}
{{- define "moorage.image" -}}
{{- $global := .root.Values.global -}}
{{- with $global.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .name }}:{{ $global.tag | default .root.Chart.AppVersion }}
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
