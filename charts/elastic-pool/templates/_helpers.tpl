{{- define "elastic-pool.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "elastic-pool.fullname" -}}
{{- $name := include "elastic-pool.name" . -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "elastic-pool.selector" -}}
app.kubernetes.io/name: {{ include "elastic-pool.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "elastic-pool.labels" -}}
{{ include "elastic-pool.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "elastic-pool.serviceAccount" -}}
{{- default (include "elastic-pool.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "elastic-pool.image" -}}
{{- if .Values.image.digest }}{{ printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}{{ end }}
{{- end }}

{{- /* What the operator may do where Pools and PoolGroups live. No verb is here that no part of it uses. */ -}}
{{- define "elastic-pool.rules" -}}
- apiGroups: [elasticpool.dev]
  resources: [poolgroups]
  verbs: [get, list, watch]
# A pool that nobody wrote is made with defaults, owned by its groups. None is ever deleted, but where an API server enforces the permissions of
# owner references, it lets only those change the owners of an object who may delete it.
- apiGroups: [elasticpool.dev]
  resources: [pools]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [elasticpool.dev]
  resources: [poolgroups/status, pools/status]
  verbs: [get, patch]
# Owner references that block deletion ask for this one.
- apiGroups: [elasticpool.dev]
  resources: [poolgroups/finalizers, pools/finalizers]
  verbs: [update]
# Workers. Victims are deleted by UID; pods are never evicted.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
# Gateways of the pools, and followed Deployments.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# A gateway pod belongs to a Deployment through its ReplicaSet: who dials the channel is checked along that line.
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Cookie and hop keys: made once per pool, read by name, never listed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- /* What has no namespace. */ -}}
{{- define "elastic-pool.clusterRules" -}}
# Who speaks on the channel.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- if .Values.readNodes }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end }}
{{- end }}
