{{/* Names, labels, and what several templates share. */}}

{{- define "tidegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 47 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 47 characters, so that the longest ending still fits into 63. */}}
{{- define "tidegate.fullname" -}}
{{- $name := include "tidegate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 47 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 47 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tidegate.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
app.kubernetes.io/name: {{ include "tidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Of the servers alone: pods of hooks and tests have another component, so that no Service sends them requests. */}}
{{- define "tidegate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "tidegate.labels" -}}
{{ include "tidegate.commonLabels" . }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "tidegate.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tidegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "tidegate.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The port of the Service with a name, or nothing if it is off. YAML reads an unquoted off as false. */}}
{{- define "tidegate.port" -}}
{{- $port := index .root.Values.service .name -}}
{{- if and $port (ne (toString $port) "off") -}}{{ int $port }}{{- end -}}
{{- end -}}

{{/* The port of the container: the same whatever the Service has, and above 1023. */}}
{{- define "tidegate.containerPort" -}}
{{- index (dict "http" 8080 "grpc" 8081 "admin" 9080 "resp" 6380 "gateway" 8000) . -}}
{{- end -}}

{{- define "tidegate.listen" -}}
{{- $address := .root.Values.listenAddress -}}
{{- if contains ":" $address }}{{ $address = printf "[%s]" $address }}{{ end -}}
{{ $address }}:{{ include "tidegate.containerPort" .name }}
{{- end -}}

{{/* The protocol of a port for meshes and gateways. None for the Redis protocol over TLS, which has no name. */}}
{{- define "tidegate.appProtocol" -}}
{{- $tls := .root.Values.tls.existingSecret -}}
{{- if eq .name "gateway" }}{{ $tls = or $tls .root.Values.config.gateway_tls_cert }}{{ end -}}
{{- if eq .name "resp" -}}
{{- if not $tls }}redis{{ end -}}
{{- else if $tls -}}
https
{{- else if eq .name "grpc" -}}
kubernetes.io/h2c
{{- else -}}
http
{{- end -}}
{{- end -}}

{{- define "tidegate.servicePort" -}}
- name: {{ .name }}
  port: {{ include "tidegate.port" . }}
  targetPort: {{ .name }}
  protocol: TCP
  {{- with include "tidegate.appProtocol" . }}
  appProtocol: {{ . }}
  {{- end }}
{{- end -}}

{{/* Metrics are on the admin port, or on that of HTTP without one. */}}
{{- define "tidegate.metricsPort" -}}
{{- if include "tidegate.port" (dict "root" . "name" "admin") }}admin{{ else }}http{{ end -}}
{{- end -}}

{{/* The fewest servers that run. */}}
{{- define "tidegate.minReplicas" -}}
{{- if .Values.autoscaling.enabled }}{{ int .Values.autoscaling.minReplicas }}{{ else }}{{ int .Values.replicaCount }}{{ end -}}
{{- end -}}

{{- define "tidegate.maxReplicas" -}}
{{- if .Values.autoscaling.enabled }}{{ int .Values.autoscaling.maxReplicas }}{{ else }}{{ int .Values.replicaCount }}{{ end -}}
{{- end -}}

{{/* The ConfigMap with the rules; nothing if they come through the API. */}}
{{- define "tidegate.rulesConfigMap" -}}
{{- if .Values.existingRulesConfigMap -}}
{{- .Values.existingRulesConfigMap -}}
{{- else if .Values.rules -}}
{{- include "tidegate.fullname" . }}-rules
{{- end -}}
{{- end -}}

{{- define "tidegate.rulesFile" -}}
{{ toYaml (dict "rules" .Values.rules) }}
{{- end -}}

{{/* The settings file: `config`, and the tokens, which have no variable of their own. */}}
{{- define "tidegate.configFile" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.tokens.existingSecret -}}
{{- $tokens := list -}}
{{- range .Values.tokens.list -}}
{{- $tokens = append $tokens (dict "name" .name "token_file" (printf "/etc/tidegate/tokens/%s" .key) "scopes" .scopes) -}}
{{- end -}}
{{- $_ := set $config "tokens" (concat $tokens (.Values.config.tokens | default list)) -}}
{{- end -}}
{{- if $config }}{{ toYaml $config }}{{ end -}}
{{- end -}}

{{/* A duration in whole seconds, rounded up. */}}
{{- define "tidegate.seconds" -}}
{{- $number := regexFind "[0-9]+" . | int -}}
{{- $unit := regexFind "[A-Za-z]+" . | lower -}}
{{- if hasPrefix "ms" $unit }}{{ div (add $number 999) 1000 }}
{{- else if hasPrefix "h" $unit }}{{ mul $number 3600 }}
{{- else if hasPrefix "m" $unit }}{{ mul $number 60 }}
{{- else }}{{ $number }}
{{- end -}}
{{- end -}}

{{/* The restricted Pod Security Standard, and a read-only root. */}}
{{- define "tidegate.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "tidegate.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What pods of hooks and tests share with the servers. */}}
{{- define "tidegate.scheduling" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The volumes of a server, but for the data directory with persistence. */}}
{{- define "tidegate.volumes" -}}
{{- if not .Values.persistence.enabled }}
- name: data
  emptyDir: {}
{{- end }}
{{- with include "tidegate.rulesConfigMap" . }}
- name: rules
  configMap:
    name: {{ . }}
{{- end }}
{{- if include "tidegate.configFile" . }}
- name: config
  configMap:
    name: {{ include "tidegate.fullname" . }}-config
{{- end }}
{{- range $name, $secret := dict "redis" .Values.redis.existingSecret "redis-tls" .Values.redis.tls.existingSecret "tls" .Values.tls.existingSecret "tokens" .Values.tokens.existingSecret }}
{{- if $secret }}
- name: {{ $name }}
  secret:
    secretName: {{ $secret }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}
