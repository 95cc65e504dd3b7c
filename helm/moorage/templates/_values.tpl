{{/* What the values mean together, and what they can't: rendering ends with a sentence. */}}

{{/* "true" or "false" */}}
{{- define "moorage.sharing" -}}
{{- $global := .Values.global -}}
{{- $mode := $global.gpuSharingMode | default "" -}}
{{- if eq $mode "HamiCore" -}}
{{- fail "global.gpuSharingMode: HamiCore is not served: Moorage does not write CUDA_DEVICE_MEMORY_LIMIT for KAI's shares (docs/enforcement.md); allowed: Disabled, NonMemoryEnforced, NvFractions" -}}
{{- end -}}
{{- if and (kindIs "bool" $global.gpuSharing) $mode -}}
{{- if ne $global.gpuSharing (ne $mode "Disabled") -}}
{{- fail (printf "global.gpuSharing=%v contradicts global.gpuSharingMode=%s: set one of them" $global.gpuSharing $mode) -}}
{{- end -}}
{{- end -}}
{{- if kindIs "bool" $global.gpuSharing -}}{{ $global.gpuSharing }}{{- else -}}{{ ne $mode "Disabled" }}{{- end -}}
{{- end }}

{{/* off, inject or reject */}}
{{- define "moorage.guard" -}}
{{- $guard := .Values.admission.visibleDevicesGuard -}}
{{- if and $guard .Values.global.blockNvidiaVisibleDevices (ne $guard "reject") -}}
{{- fail (printf "global.blockNvidiaVisibleDevices=true contradicts admission.visibleDevicesGuard=%s: set one of them" $guard) -}}
{{- end -}}
{{- $guard | default (ternary "reject" "inject" .Values.global.blockNvidiaVisibleDevices) -}}
{{- end }}

{{/* Runtime class of reservation pods, by either of KAI's names: its documents have one, its chart reads the other. */}}
{{- define "moorage.reservationRuntimeClass" -}}
{{- $one := .Values.binder.resourceReservation.runtimeClassName -}}
{{- $other := .Values.binder.runtimeClassName -}}
{{- if and (kindIs "string" $one) (kindIs "string" $other) (ne $one $other) -}}
{{- fail (printf "binder.resourceReservation.runtimeClassName=%q contradicts binder.runtimeClassName=%q: set one of them" $one $other) -}}
{{- end -}}
{{- if kindIs "string" $one -}}{{ $one }}{{- else if kindIs "string" $other -}}{{ $other }}{{- else -}}nvidia{{- end -}}
{{- end }}

{{/* "true" or "false": whether Moorage makes the PodGroups of workloads. */}}
{{- define "moorage.grouping" -}}
{{- .Values.podgrouper.enabled -}}
{{- end }}

{{- define "moorage.checked" -}}
{{- if ne .Release.Namespace "kai-scheduler" -}}
{{- fail (printf "the release's namespace is %s; allowed: kai-scheduler, which policies and leases name (add: --namespace kai-scheduler --create-namespace)" .Release.Namespace) -}}
{{- end -}}
{{- end }}

{{/* Values of KAI's that would change what a workload sees, and that nothing here answers to. */}}
{{- define "moorage.refused" -}}
{{- $values := .Values -}}
{{- range $path := list
  "global.namespaceLabelSelector" "global.podLabelSelector"
  "scheduler.plugins" "scheduler.actions" "scheduler.scenarioSearchBudgets" "binder.plugins" -}}
{{- $parts := splitList "." $path -}}
{{- if get (get $values (first $parts)) (last $parts) -}}
{{- fail (printf "%s: Moorage has nothing that does this (docs/migrating/kai.md, Values of KAI's chart): take it out" $path) -}}
{{- end -}}
{{- end -}}
{{- if not (has ($values.global.fipsMode | default "off" | toString) (list "off" "false")) -}}
{{- fail (printf "global.fipsMode=%v: Moorage has no such images; allowed: off" $values.global.fipsMode) -}}
{{- end -}}
{{- range $component := list "scheduler" "binder" "admission" -}}
{{- if eq (toString (get (get $values $component) "enabled")) "false" -}}
{{- fail (printf "%s.enabled=false: Moorage does not work without it; to have none at work for a while: %s.replicas=0" $component $component) -}}
{{- end -}}
{{- end -}}
{{- $reservation := $values.global.resourceReservation | default dict -}}
{{- range $key := list "namespace" "serviceAccount" "appLabel" -}}
{{- if ne (get $reservation $key | default "kai-resource-reservation") "kai-resource-reservation" -}}
{{- fail (printf "global.resourceReservation.%s=%v: allowed: kai-resource-reservation" $key (get $reservation $key)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Options of KAI's scheduler in scheduler.args that change nothing: how it logs, profiles and connects, and what it leaves undone. */}}
{{- define "moorage.kaisOptions" -}}
v schedule-period listen-address plugin-server-port enable-profiler profiler-port log-json max-consolidation-preemptees detailed-fit-errors update-pod-eviction-condition use-scheduling-signatures full-hierarchy-fairness allow-consolidating-reclaim num-of-status-recording-workers metrics-namespace qps burst leader-elect
{{- end }}

{{/* Values of KAI's that are set and change nothing, one a line. */}}
{{- define "moorage.unused" -}}
{{- $values := .Values -}}
{{- range $key := list "openshift" "operator" "podgroupcontroller" "queuecontroller" "defaultShard" "kaiConfig" "kaiConfigDeployer" "topologyMigration" "postCleanup" "prometheus" "crdupgrader" "numaPlacementExporter" "gpu-sharing" -}}
{{- if hasKey $values $key }}
  {{ $key }}
{{- end -}}
{{- end -}}
{{- range $path := list
  "global.leaderElection" "global.requireDefaultPodAntiAffinityTerm" "global.vpa" "global.nvFractions" "global.fipsMode"
  "global.daemonsetsTolerations"
  "podgrouper.queueLabelKey" "podgrouper.genericKartaFallback"
  "scheduler.enabled" "scheduler.ports" "scheduler.goMemLimitRatio" "scheduler.goMemLimit"
  "binder.enabled" "binder.name" "binder.ports" "binder.resourceReservationImage" "binder.resourceReservationPodResources"
  "admission.enabled" "admission.name" "admission.cdi" "admission.ports" "admission.certSecretName" "admission.gpuPodRuntimeClassName"
  "nodescaleadjuster.enabled" "nodescaleadjuster.image" "nodescaleadjuster.affinity" "nodescaleadjuster.resources"
  "nodescaleadjuster.podDisruptionBudget" "nodescaleadjuster.scalingPodNamespace" "nodescaleadjuster.labels" -}}
{{- $parts := splitList "." $path -}}
{{- if hasKey (get $values (first $parts)) (last $parts) }}
  {{ $path }}
{{- end -}}
{{- end -}}
{{- $kaisImages := splitList " " (include "moorage.kaisImages" .) -}}
{{- range $component := list "scheduler" "binder" "podgrouper" "admission" -}}
{{- if has (get $values $component).image.name $kaisImages }}
  {{ $component }}.image.name and tag (the images that run stand above)
{{- end -}}
{{- end -}}
{{- if hasKey $values.nodescaleadjuster.scalingPodImage "pullPolicy" }}
  nodescaleadjuster.scalingPodImage.pullPolicy
{{- end -}}
{{- range splitList " " (include "moorage.kaisOptions" .) -}}
{{- if hasKey $values.scheduler.args . }}
  scheduler.args.{{ . }}
{{- end -}}
{{- end -}}
{{- end }}
