{{/* What the schema cannot say: combinations that would not work, or would not do what they seem to. All are reported together. */}}

{{/* Settings that the chart sets, and the values to use instead. */}}
{{- define "tidegate.ownSettings" -}}
http: service.http
grpc: service.grpc
admin: service.admin
resp: service.resp
gateway: service.gateway
rules: rules or existingRulesConfigMap
data_dir: persistence
instances: replicaCount or autoscaling.minReplicas
drain_delay: drainDelay
redis: redis.url
redis_password_file: redis.existingSecret
redis_ca: redis.tls.existingSecret
redis_cert: redis.tls.certKey
redis_key: redis.tls.keyKey
tls_cert: tls.existingSecret
tls_key: tls.existingSecret
tls_client_ca: tls.clientCaKey
http_tls_client_ca: tls.httpClientCaKey
{{- end -}}

{{- define "tidegate.refuse" -}}
{{- $values := .Values -}}
{{- $problems := list -}}
{{- $replicas := include "tidegate.maxReplicas" . | int -}}
{{- $ownSettings := include "tidegate.ownSettings" . | fromYaml -}}

{{- if not $values.image.repository -}}
{{- $problems = append $problems "image.repository is empty: no image is published yet; build one, push it to your registry, and set its name" -}}
{{- end -}}

{{- if and $values.autoscaling.enabled (gt (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas)) -}}
{{- $problems = append $problems (printf "autoscaling.minReplicas is %d, above autoscaling.maxReplicas, which is %d" (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas)) -}}
{{- end -}}

{{- if and $values.autoscaling.enabled (not (dig "requests" "cpu" "" $values.resources)) -}}
{{- $problems = append $problems "autoscaling without resources.requests.cpu: the load is measured against it" -}}
{{- end -}}

{{- if and (gt $replicas 1) (not $values.redis.url) -}}
{{- if not $values.allowUnshared -}}
{{- $problems = append $problems (printf "%d replicas without Redis: each would grant the whole limit; set redis.url, or replicaCount: 1, or allowUnshared: true if that is what you want" $replicas) -}}
{{- end -}}
{{- if not (include "tidegate.rulesConfigMap" .) -}}
{{- $problems = append $problems (printf "%d replicas without Redis and without rules: each would have rules of its own; set rules or existingRulesConfigMap, or redis.url" $replicas) -}}
{{- end -}}
{{- end -}}

{{- if and $values.rules $values.existingRulesConfigMap -}}
{{- $problems = append $problems "rules and existingRulesConfigMap are both set: rules come from one of them" -}}
{{- end -}}
{{- $size := include "tidegate.rulesFile" . | len -}}
{{- if gt $size 1048576 -}}
{{- $problems = append $problems (printf "rules have %d bytes: a ConfigMap holds at most 1 MiB (1048576 bytes); without rules, they are stored in Redis or the data directory, through the API" $size) -}}
{{- end -}}

{{- range $key, $instead := $ownSettings -}}
{{- if hasKey $values.config $key -}}
{{- $problems = append $problems (printf "config.%s is set by the chart: use %s" $key $instead) -}}
{{- end -}}
{{- end -}}

{{- if regexMatch "^[a-z+]+://[^@]*:[^@]*@" $values.redis.url -}}
{{- $problems = append $problems "redis.url has a password: put it into a Secret, and name that in redis.existingSecret" -}}
{{- end -}}
{{- if not $values.redis.url -}}
{{- if $values.redis.existingSecret -}}
{{- $problems = append $problems "redis.existingSecret is set without redis.url" -}}
{{- end -}}
{{- if $values.redis.tls.existingSecret -}}
{{- $problems = append $problems "redis.tls.existingSecret is set without redis.url" -}}
{{- end -}}
{{- else if and $values.redis.tls.existingSecret (not (hasPrefix "rediss" $values.redis.url)) -}}
{{- $problems = append $problems "redis.tls.existingSecret is set, but redis.url is not one with TLS: it begins with `rediss`" -}}
{{- end -}}
{{- if and $values.redis.keySecretKey (not $values.redis.existingSecret) -}}
{{- $problems = append $problems "redis.keySecretKey is set without redis.existingSecret" -}}
{{- end -}}
{{- if and $values.redis.keySecretKey (hasKey $values.config "key_secret_file") -}}
{{- $problems = append $problems "redis.keySecretKey and config.key_secret_file are both set" -}}
{{- end -}}
{{- if ne (empty $values.redis.tls.certKey) (empty $values.redis.tls.keyKey) -}}
{{- $problems = append $problems "redis.tls.certKey and redis.tls.keyKey go together" -}}
{{- end -}}
{{- range $key := list "clientCaKey" "httpClientCaKey" -}}
{{- if and (get $values.tls $key) (not $values.tls.existingSecret) -}}
{{- $problems = append $problems (printf "tls.%s is set without tls.existingSecret" $key) -}}
{{- end -}}
{{- end -}}
{{- if and $values.tls.clientSecret (not $values.tls.httpClientCaKey) -}}
{{- $problems = append $problems "tls.clientSecret is set without tls.httpClientCaKey: no client needs a certificate" -}}
{{- end -}}
{{- if and $values.serviceMonitor.enabled $values.tls.httpClientCaKey (not $values.tls.clientSecret) -}}
{{- $problems = append $problems "serviceMonitor.enabled and tls.httpClientCaKey are set without tls.clientSecret: Prometheus would have no certificate to present" -}}
{{- end -}}

{{- $names := list -}}
{{- if $values.tokens.existingSecret -}}
{{- if not $values.tokens.list -}}
{{- $problems = append $problems "tokens.existingSecret is set, but tokens.list is empty" -}}
{{- end -}}
{{- range concat $values.tokens.list ($values.config.tokens | default list) -}}
{{- $name := toString .name -}}
{{- if has $name $names -}}
{{- $problems = append $problems (printf "two tokens have the name `%s`" $name) -}}
{{- end -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}

{{- $gateway := include "tidegate.port" (dict "root" . "name" "gateway") -}}
{{- $upstream := or $values.config.upstream $values.config.routes -}}
{{- if and $gateway (not $upstream) -}}
{{- $problems = append $problems "service.gateway is set without config.upstream or config.routes: it would have nothing to forward to" -}}
{{- else if and $upstream (not $gateway) -}}
{{- $problems = append $problems "config.upstream or config.routes is set without service.gateway, which forwards to them" -}}
{{- end -}}

{{- $ports := dict -}}
{{- range $name := list "http" "grpc" "resp" "gateway" -}}
{{- with include "tidegate.port" (dict "root" $ "name" $name) -}}
{{- if hasKey $ports . -}}
{{- $problems = append $problems (printf "service.%s and service.%s are both port %s" (get $ports .) $name .) -}}
{{- end -}}
{{- $_ := set $ports . $name -}}
{{- end -}}
{{- end -}}

{{- $timeout := $values.config.drain_timeout | default "10s" -}}
{{- $drain := add (include "tidegate.seconds" $values.drainDelay | int) (include "tidegate.seconds" $timeout | int) -}}
{{- if le (int $values.terminationGracePeriodSeconds) (int $drain) -}}
{{- $problems = append $problems (printf "terminationGracePeriodSeconds is %d: it must be above drainDelay and config.drain_timeout together, %d s, or requests in flight are lost" (int $values.terminationGracePeriodSeconds) (int $drain)) -}}
{{- end -}}

{{- $allowed := list "configMap" "csi" "downwardAPI" "emptyDir" "ephemeral" "persistentVolumeClaim" "projected" "secret" -}}
{{- range $volume := $values.extraVolumes -}}
{{- range $kind := keys (omit $volume "name") | sortAlpha -}}
{{- if not (has $kind $allowed) -}}
{{- $problems = append $problems (printf "extraVolumes: `%s` is of the kind `%s`, which the restricted Pod Security Standard forbids; expected one of %s" $volume.name $kind (join ", " $allowed)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $reserved := list "config" "data" "redis" "redis-tls" "rules" "tls" "tokens" -}}
{{- range $values.extraVolumes -}}
{{- if has .name $reserved -}}
{{- $problems = append $problems (printf "extraVolumes: `%s` is the name of a volume of the chart" .name) -}}
{{- end -}}
{{- end -}}

{{- range $values.extraEnv -}}
{{- $key := trimPrefix "TIDEGATE_" .name | lower -}}
{{- if ne $key (lower .name) -}}
{{- if or (hasKey $ownSettings $key) (eq $key "config") -}}
{{- $problems = append $problems (printf "extraEnv: %s is set by the chart: use %s" .name (get $ownSettings $key | default "config")) -}}
{{- else if and (hasKey . "value") (or (has $key (list "token" "key_secret")) (hasSuffix "_password" $key)) -}}
{{- $problems = append $problems (printf "extraEnv: %s is a secret: use redis.existingSecret or tokens.existingSecret, or valueFrom.secretKeyRef" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if $problems -}}
{{- fail (printf "\n\nthese values are refused:\n- %s\n" (join "\n- " $problems)) -}}
{{- end -}}
{{- end -}}
