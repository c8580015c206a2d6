{{- define "tidegate.selector" -}}
app.kubernetes.io/name: tidegate-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
