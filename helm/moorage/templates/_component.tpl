{{/* How kubelet asks a scheduler's or binder's health (docs/design/installing.md, Ports). */}}
{{- define "moorage.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
{{- end }}

{{/*
A component's Deployment, with what is the same for all:
(dict "root" $ "component" NAME "values" ITS-VALUES "args" LIST "ports" LIST "probes" DICT "mounts" LIST "volumes" LIST)
"pool": the node pool of a further scheduler, which has no PodDisruptionBudget: that of the first one selects its pods.
*/}}
{{- define "moorage.deployment" -}}
{{- $root := .root -}}
{{- $global := $root.Values.global -}}
{{- $values := .values -}}
{{- $selector := include "moorage.selector" (dict "root" $root "component" .component "pool" .pool) -}}
{{- $name := printf "moorage-%s" .component -}}
{{- if .pool -}}{{- $name = printf "%s-%s" $name .pool -}}{{- end -}}
{{- $ports := .ports -}}
{{- if $root.Values.metrics.enabled -}}
{{- $ports = append $ports (dict "name" "http-metrics" "containerPort" 8080) -}}
{{- end -}}
{{- $options := $values.args -}}
{{- if eq .component "scheduler" -}}
{{- range splitList " " (include "moorage.kaisOptions" .) -}}
{{- $options = omit $options . -}}
{{- end -}}
{{- end -}}
{{- $tracing := $root.Values.tracing -}}
{{- $mounts := .mounts | default list -}}
{{- $volumes := .volumes | default list -}}
{{- if and $tracing.endpoint $tracing.headersSecret -}}
{{- $mounts = append $mounts (dict "name" "traces-headers" "mountPath" "/traces-headers" "readOnly" true) -}}
{{- $volumes = append $volumes (dict "name" "traces-headers" "secret" (dict "secretName" $tracing.headersSecret)) -}}
{{- end -}}
{{- if and $tracing.endpoint $tracing.caConfigMap -}}
{{- $mounts = append $mounts (dict "name" "traces-ca" "mountPath" "/traces-ca" "readOnly" true) -}}
{{- $volumes = append $volumes (dict "name" "traces-ca" "configMap" (dict "name" $tracing.caConfigMap)) -}}
{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "moorage.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  replicas: {{ $values.replicas }}
  # A replica goes when its successor is ready: in step with the cluster, so that it can take over.
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- $selector | nindent 8 }}
        app.kubernetes.io/name: moorage
        app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
      {{- with .annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: moorage-{{ .component }}
      # Variables that are named after Services look like settings (docs/reference/settings.md).
      enableServiceLinks: false
      # Its own shutdown takes 12 s at most.
      terminationGracePeriodSeconds: 30
      {{- with $global.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $global.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $global.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $global.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.affinity | default $global.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
        - maxSkew: 1
          topologyKey: {{ $key }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
        {{- end }}
      securityContext:
        {{- toYaml (mergeOverwrite (dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault")) $global.podSecurityContext) | nindent 8 }}
      containers:
        - name: {{ .component }}
          image: {{ include "moorage.image" (dict "root" $root "image" $values.image "ours" "moorage/moorage") | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy | default $global.imagePullPolicy }}
          args:
            - {{ .component }}
            - --log-level={{ $values.logLevel }}
            {{- if kindIs "bool" $global.jsonLog }}
            - --log-format={{ ternary "json" "text" $global.jsonLog }}
            {{- end }}
            {{- range .args }}
            - {{ . | quote }}
            {{- end }}
            {{- if $root.Values.metrics.enabled }}
            - --metrics-bind-address=:8080
            {{- end }}
            {{- if $tracing.endpoint }}
            - {{ printf "--traces-endpoint=%s" $tracing.endpoint | quote }}
            - {{ printf "--traces-ratio=%v" $tracing.ratio | quote }}
            {{- if $tracing.headersSecret }}
            - --traces-headers-file=/traces-headers/headers
            {{- end }}
            {{- if $tracing.caConfigMap }}
            - --traces-ca-file=/traces-ca/ca.crt
            {{- end }}
            {{- end }}
            {{- range $name, $value := $options }}
            - {{ printf "--%s=%v" $name $value | quote }}
            {{- end }}
          {{- with $ports }}
          ports:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .probes }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            {{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "runAsNonRoot" true "capabilities" (dict "drop" (list "ALL")) }}
            {{- toYaml (mergeOverwrite $own $global.securityContext) | nindent 12 }}
          {{- with $mounts }}
          volumeMounts:
            {{- toYaml . | nindent 12 }}
          {{- end }}
      {{- with $volumes }}
      volumes:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- if and (not .pool) $values.podDisruptionBudget.enabled (gt (int $values.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: moorage-{{ .component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "moorage.labels" $root | nindent 4 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  # A replica that can't become ready holds up no drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- $selector | nindent 6 }}
{{- end }}
{{- end }}
