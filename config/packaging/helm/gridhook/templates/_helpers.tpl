{{- define "gridhook.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Short enough for the suffixes -admin and -headless, and for the pod's -0. */}}
{{- define "gridhook.fullname" -}}
{{- $name := include "gridhook.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "gridhook.selector" -}}
app.kubernetes.io/name: {{ include "gridhook.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gridhook.labels" -}}
{{ include "gridhook.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "gridhook.secret" -}}
{{- default (include "gridhook.fullname" .) .Values.adminToken.existingSecret }}
{{- end }}

{{/* gridhook tells the formats apart by the name of the file. */}}
{{- define "gridhook.applyFile" -}}
{{- ternary "resources.json" "resources.toml" (hasPrefix "{" (trim .Values.apply)) }}
{{- end }}

{{- define "gridhook.scheme" -}}
{{- ternary "https" "http" (ne .Values.tls.secretName "") }}
{{- end }}

{{- define "gridhook.port" -}}
{{- if .Values.service.port }}{{ .Values.service.port | int }}{{ else }}{{ ternary 443 80 (ne .Values.tls.secretName "") }}{{ end }}
{{- end }}

{{- define "gridhook.publicUrl" -}}
{{- $scheme := include "gridhook.scheme" . }}
{{- $port := include "gridhook.port" . | int }}
{{- if .Values.publicUrl }}
{{- .Values.publicUrl }}
{{- else if .Values.ingress.enabled }}
{{- ternary "https" "http" (ne .Values.ingress.tlsSecretName "") }}://{{ .Values.ingress.host }}
{{- else }}
{{- $scheme }}://{{ include "gridhook.fullname" . }}.{{ .Release.Namespace }}.svc
{{- if ne $port (ternary 443 80 (eq $scheme "https")) }}:{{ $port }}{{ end }}
{{- end }}
{{- end }}

{{/* A SAS token is valid for these names only. */}}
{{- define "gridhook.hostNames" -}}
{{- $name := include "gridhook.fullname" . }}
{{- $short := printf "%s.%s" $name .Release.Namespace }}
{{- $names := list $name $short (printf "%s.svc" $short) (printf "%s.svc.%s" $short .Values.clusterDomain) }}
{{- if .Values.ingress.enabled }}
{{- $names = append $names .Values.ingress.host }}
{{- end }}
{{- concat $names .Values.hostNames | uniq | join "," }}
{{- end }}

{{/* One environment variable for each setting. YAML reads numbers as floats: 67108864 must not become 6.7108864e+07. */}}
{{- define "gridhook.settings" -}}
{{- range $key, $value := .values }}
{{- $name := printf "%s%s" $.prefix (upper $key) }}
{{- if kindIs "map" $value }}
{{- include "gridhook.settings" (dict "prefix" (printf "%s__" $name) "values" $value) }}
{{- else }}
- name: {{ $name }}
{{- if kindIs "slice" $value }}
  value: {{ join "," $value | quote }}
{{- else if and (kindIs "float64" $value) (eq $value (floor $value)) }}
  value: {{ printf "%.0f" $value | quote }}
{{- else }}
  value: {{ toString $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The variables of a node of a cluster. */}}
{{- define "gridhook.cluster" -}}
{{- $nats := .Values.cluster.nats }}
- name: GRIDHOOK_CLUSTER__ENGINE
  value: nats
- name: GRIDHOOK_CLUSTER__NAME
  value: {{ .Values.cluster.name | quote }}
- name: GRIDHOOK_CLUSTER__NODE
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: GRIDHOOK_CLUSTER__NODE_LISTEN
  value: "0.0.0.0:8082"
- name: GRIDHOOK_CLUSTER__ADVERTISE
  value: $(GRIDHOOK_CLUSTER__NODE).{{ include "gridhook.fullname" . }}-headless.{{ .Release.Namespace }}.svc:8082
- name: GRIDHOOK_CLUSTER__SECRET_FILE
  value: /etc/gridhook/cluster/cluster-secret
- name: GRIDHOOK_CLUSTER__URLS
  value: {{ join "," $nats.urls | quote }}
{{- if $nats.secretName }}
- name: GRIDHOOK_CLUSTER__USERNAME
  value: {{ $nats.username | quote }}
- name: GRIDHOOK_CLUSTER__PASSWORD_FILE
  value: /etc/gridhook/nats/password
{{- if $nats.systemUsername }}
- name: GRIDHOOK_CLUSTER__SYSTEM_USERNAME
  value: {{ $nats.systemUsername | quote }}
- name: GRIDHOOK_CLUSTER__SYSTEM_PASSWORD_FILE
  value: /etc/gridhook/nats/system-password
{{- end }}
{{- end }}
{{- if $nats.tlsSecretName }}
- name: GRIDHOOK_CLUSTER__CA_FILE
  value: /etc/gridhook/nats-tls/ca.crt
{{- if $nats.clientCertificate }}
- name: GRIDHOOK_CLUSTER__CERTIFICATE_FILE
  value: /etc/gridhook/nats-tls/tls.crt
- name: GRIDHOOK_CLUSTER__KEY_FILE
  value: /etc/gridhook/nats-tls/tls.key
{{- end }}
{{- end }}
{{- if .Values.cluster.tlsSecretName }}
- name: GRIDHOOK_CLUSTER__NODE_CA_FILE
  value: /etc/gridhook/nodes-tls/ca.crt
- name: GRIDHOOK_CLUSTER__NODE_CERTIFICATE_FILE
  value: /etc/gridhook/nodes-tls/tls.crt
- name: GRIDHOOK_CLUSTER__NODE_KEY_FILE
  value: /etc/gridhook/nodes-tls/tls.key
{{- end }}
{{- end }}

{{/* The Secrets that a pod mounts at /etc/gridhook, by folder. */}}
{{- define "gridhook.secretFolders" -}}
{{- $folders := dict }}
{{- if .Values.tls.secretName }}
{{- $_ := set $folders "tls" .Values.tls.secretName }}
{{- end }}
{{- if .Values.cluster.enabled }}
{{- $_ := set $folders "cluster" (include "gridhook.secret" .) }}
{{- range $folder, $name := dict "nats" .Values.cluster.nats.secretName "nats-tls" .Values.cluster.nats.tlsSecretName "nodes-tls" .Values.cluster.tlsSecretName }}
{{- if $name }}
{{- $_ := set $folders $folder $name }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $folders }}
{{- end }}

{{/* Settings that the chart sets from other values. */}}
{{- define "gridhook.check" -}}
{{- $own := dict
  "listen" "service"
  "admin_listen" "adminService"
  "data_dir" "storage"
  "shutdown_timeout" "shutdownTimeoutSeconds"
  "admin_token" "adminToken"
  "public_url" "publicUrl"
  "host_names" "hostNames"
  "apply" "apply"
  "tls_certificate" "tls.secretName"
  "tls_key" "tls.secretName" }}
{{- range $key, $_ := (default dict .Values.settings.server) }}
{{- if hasKey $own $key }}
{{- fail (printf "settings.server.%s is set by the chart; use the value %s instead" $key (get $own $key)) }}
{{- end }}
{{- end }}
{{- range $key, $_ := (default dict .Values.settings.cluster) }}
{{- if has $key (list "engine" "name" "node" "node_listen" "advertise" "secret_file" "urls" "username" "password_file" "system_username" "system_password_file" "ca_file" "certificate_file" "key_file" "node_ca_file" "node_certificate_file" "node_key_file") }}
{{- fail (printf "settings.cluster.%s is set by the chart; use the values of cluster, with nats.secretName for a login" $key) }}
{{- end }}
{{- end }}
{{- if .Values.cluster.enabled }}
{{- if not .Values.cluster.nats.urls }}
{{- fail "cluster.nats.urls is empty; expected the addresses of NATS servers" }}
{{- end }}
{{- if gt (len (include "gridhook.fullname" .)) 29 }}
{{- fail (printf "the name %s is too long for the nodes of a cluster; set fullnameOverride to 29 characters or less" (include "gridhook.fullname" .)) }}
{{- end }}
{{- end }}
{{- if hasKey (default dict .Values.settings.metrics) "token" }}
{{- fail "settings.metrics.token would be readable in the pod's specification; use the key metrics-token of the Secret instead" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}
{{- fail "ingress.host is empty; expected the host name of the ingress" }}
{{- end }}
{{- end }}
