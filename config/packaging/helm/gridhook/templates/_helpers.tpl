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

{{/* Settings that the chart sets from other values. */}}
{{- define "gridhook.check" -}}
{{- $own := dict
  "listen" "service"
  "admin_listen" "adminService"
  "data_dir" "storage"
  "shutdown_wait" "shutdownWaitSeconds"
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
{{- if hasKey (default dict .Values.settings.metrics) "token" }}
{{- fail "settings.metrics.token would be readable in the pod's specification; use the key metrics-token of the Secret instead" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}
{{- fail "ingress.host is empty; allowed is the host name of the ingress" }}
{{- end }}
{{- end }}
