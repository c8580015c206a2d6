{{- define "tidegate.name" -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}-operator
{{- end }}
{{- define "tidegate.labels" -}}
app.kubernetes.io/name: tidegate-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
