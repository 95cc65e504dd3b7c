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

{{- define "moorage.checked" -}}
{{- if ne .Release.Namespace "kai-scheduler" -}}
{{- fail (printf "the release's namespace is %s; allowed: kai-scheduler, which policies and leases name (add: --namespace kai-scheduler --create-namespace)" .Release.Namespace) -}}
{{- end -}}
{{- end }}

{{/* Values of KAI's that would change what a workload sees, and that nothing here answers to. */}}
{{- define "moorage.refused" -}}
{{- $values := .Values -}}
{{- range $path := list
  "global.nodePoolLabelKey" "global.namespaceLabelSelector" "global.podLabelSelector" "global.fipsMode"
  "scheduler.plugins" "scheduler.actions" "scheduler.scenarioSearchBudgets" "binder.plugins" -}}
{{- $parts := splitList "." $path -}}
{{- if get (get $values (first $parts)) (last $parts) -}}
{{- fail (printf "%s: Moorage has nothing that does this (docs/install.md, Values of KAI): take it out" $path) -}}
{{- end -}}
{{- end -}}
{{- $reservation := $values.global.resourceReservation | default dict -}}
{{- range $key := list "namespace" "serviceAccount" "appLabel" -}}
{{- if ne (get $reservation $key | default "kai-resource-reservation") "kai-resource-reservation" -}}
{{- fail (printf "global.resourceReservation.%s=%v: allowed: kai-resource-reservation" $key (get $reservation $key)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Values of KAI's that are set and change nothing, one a line. */}}
{{- define "moorage.unused" -}}
{{- $values := .Values -}}
{{- range $key := list "openshift" "operator" "podgrouper" "podgroupcontroller" "queuecontroller" "defaultShard" "kaiConfig" "kaiConfigDeployer" "topologyMigration" "postCleanup" "prometheus" "crdupgrader" -}}
{{- if hasKey $values $key }}
  {{ $key }}
{{- end -}}
{{- end -}}
{{- range $path := list
  "global.leaderElection" "global.requireDefaultPodAntiAffinityTerm" "global.vpa" "global.nvFractions"
  "scheduler.goMemLimitRatio" "binder.enabled" "binder.ports" "binder.resourceReservationImage"
  "binder.resourceReservationPodResources" "admission.cdi" "admission.ports" "nodescaleadjuster.scalingPodNamespace"
  "nodescaleadjuster.labels" -}}
{{- $parts := splitList "." $path -}}
{{- if hasKey (get $values (first $parts)) (last $parts) }}
  {{ $path }}
{{- end -}}
{{- end -}}
{{- end }}
